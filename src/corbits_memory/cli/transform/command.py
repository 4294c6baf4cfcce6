"""The commands, in the order in which they are used."""

import typer

from corbits_memory.cli.transform import configs, generations, runs

app = typer.Typer(no_args_is_help=True, help="Derive the corpus anew beside the live one, and promote it.")

app.command("create")(configs.create)
app.command("run")(runs.run)
app.command("list")(runs.list_transforms)
app.command("show")(runs.show)
app.command("diff")(configs.diff)
app.command("delete")(configs.delete)
app.command("pause")(runs.pause)
app.command("resume")(runs.resume)
app.command("cancel")(runs.cancel)
app.command("retry")(runs.retry)
app.command("compare")(generations.compare)
app.command("queries")(generations.queries)
app.command("promote")(generations.promote)
app.command("demote")(generations.demote)
