"""``/openapi.json``, and the same as a page for people that needs no script and no other server."""

from collections.abc import Iterator, Mapping
from html import escape
from typing import Any

from starlette.requests import Request
from starlette.responses import HTMLResponse, JSONResponse, Response
from starlette.routing import Route

from corbits_memory.http import memory_openapi
from corbits_memory.http.errors import REQUEST_ID, request_id_of

_HOST_ROUTES = {
    "/healthz": ("host_alive", "The process is alive"),
    "/readyz": ("host_ready", "The memory would answer now; 503 when not"),
    "/metrics": ("host_metrics", "Figures for Prometheus"),
}
_STYLE = """
body{font:16px/1.5 system-ui,sans-serif;max-width:52rem;margin:2rem auto;padding:0 1rem;color:#1c2733;background:#fff}
h2{margin-top:2.5rem;font-size:1.1rem} code,pre{font:14px/1.5 ui-monospace,monospace}
code,pre{background:#f1f4f7;border-radius:4px}
code{padding:.1rem .3rem} pre{padding:.8rem;overflow-x:auto} table{border-collapse:collapse;width:100%}
td,th{text-align:left;vertical-align:top;padding:.3rem .6rem .3rem 0;border-bottom:1px solid #dde4ea}
@media (prefers-color-scheme:dark){body{color:#dbe4ec;background:#12181f}code,pre{background:#1d2732}
td,th{border-color:#2c3947}a{color:#7db7ff}}
"""


def host_openapi() -> dict[str, Any]:
    """The memory's document with the host's own routes and its way of asking who calls."""
    document = memory_openapi()
    schemes = document.setdefault("components", {}).setdefault("securitySchemes", {})
    schemes["bearer"] = {
        "type": "http",
        "scheme": "bearer",
        "description": "A token of this host; it also says the tenant and the principal.",
    }
    document["security"] = [{"bearer": []}]
    for path, (name, summary) in _HOST_ROUTES.items():
        document["paths"][path] = {
            "get": {
                "operationId": name,
                "summary": summary,
                "tags": ["host"],
                "security": [],
                "responses": {"200": {"description": "The answer."}},
            }
        }
    return document


def docs_routes() -> list[Route]:
    document = host_openapi()
    page = "".join(_page(document))

    async def openapi(request: Request) -> Response:
        return JSONResponse(document, headers={REQUEST_ID: request_id_of(request)})

    async def docs(request: Request) -> Response:
        return HTMLResponse(page, headers={REQUEST_ID: request_id_of(request)})

    return [Route("/openapi.json", openapi), Route("/docs", docs)]


def _page(document: Mapping[str, Any]) -> Iterator[str]:
    info = document["info"]
    yield '<!doctype html><html lang="en"><meta charset="utf-8"><meta name="viewport" content="width=device-width">'
    yield f"<title>{escape(info['title'])} API</title><style>{_STYLE}</style>"
    yield f"<h1>{escape(info['title'])} <small>{escape(info['version'])}</small></h1>"
    yield f"<p>{escape(info.get('description', ''))} Send <code>Authorization: Bearer TOKEN</code>. "
    yield 'For machines: <a href="/openapi.json">/openapi.json</a>.</p>'
    for path, methods in document["paths"].items():
        for method, operation in methods.items():
            yield from _operation(document, path, method, operation)
    yield "</html>"


def _operation(
    document: Mapping[str, Any], path: str, method: str, operation: Mapping[str, Any]
) -> Iterator[str]:
    yield f"<h2>{escape(operation['summary'])}</h2>"
    yield f"<p><code>{escape(method.upper())} {escape(path)}</code></p>"
    if operation.get("description"):
        yield f"<p>{escape(operation['description'])}</p>"
    rows = [
        (parameter["name"], parameter["schema"], parameter.get("required", False))
        for parameter in operation.get("parameters", [])
        if parameter["in"] == "query"
    ]
    body = _schema_of(document, operation.get("requestBody"))
    required = body.get("required", [])
    rows += [(name, schema, name in required) for name, schema in body.get("properties", {}).items()]
    if rows:
        yield "<table><tr><th>Field<th>Type<th>About"
        for name, schema, must in rows:
            yield f"<tr><td><code>{escape(name)}</code>{' *' if must else ''}"
            yield f"<td>{escape(_type(schema))}<td>{escape(schema.get('description', ''))}"
        yield "</table>"


def _schema_of(document: Mapping[str, Any], body: Mapping[str, Any] | None) -> Mapping[str, Any]:
    if body is None:
        return {}
    (content,) = body["content"].values()
    name = content["schema"]["$ref"].rsplit("/", 1)[-1]
    schema: Mapping[str, Any] = document["components"]["schemas"][name]
    return schema


def _type(schema: Mapping[str, Any]) -> str:
    """A short word for a JSON schema: ``string``, ``string[]``, ``a | b``."""
    if "$ref" in schema:
        return str(schema["$ref"]).rsplit("/", 1)[-1]
    if "enum" in schema:
        return " | ".join(map(str, schema["enum"]))
    for several in ("anyOf", "oneOf"):
        if several in schema:
            return " | ".join(_type(each) for each in schema[several] if each.get("type") != "null")
    kind = str(schema.get("type", "any"))
    return f"{_type(schema['items'])}[]" if kind == "array" and "items" in schema else kind
