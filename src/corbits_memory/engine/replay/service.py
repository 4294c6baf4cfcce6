"""All of replay that a store needs, put together."""

from collections.abc import Callable
from datetime import datetime

from corbits_memory.engine.directory import ModelDirectory
from corbits_memory.engine.embedding import EmbeddingService
from corbits_memory.engine.generations import Generations
from corbits_memory.engine.pool import Database
from corbits_memory.engine.replay.catchup import CatchUp
from corbits_memory.engine.replay.configs import ConfigService
from corbits_memory.engine.replay.promote import Promoter
from corbits_memory.engine.replay.runs import RunService
from corbits_memory.engine.replay.slices import SliceWorker
from corbits_memory.engine.statistics import StatisticsService
from corbits_memory.engine.vectors import VectorRegistry


class ReplayService:
    def __init__(
        self,
        database: Database,
        *,
        generations: Generations,
        directory: ModelDirectory,
        registry: VectorRegistry,
        embedding: EmbeddingService,
        statistics: StatisticsService,
        clock: Callable[[], datetime],
    ) -> None:
        catch_up = CatchUp(database, embedding, clock=clock)
        self.configs = ConfigService(database)
        self.runs = RunService(database, self.configs, directory, registry)
        self.slices = SliceWorker(database, self.runs, embedding, generations, catch_up, clock=clock)
        self.promoter = Promoter(
            database,
            generations=generations,
            embedding=embedding,
            registry=registry,
            statistics=statistics,
            catch_up=catch_up,
            clock=clock,
        )
