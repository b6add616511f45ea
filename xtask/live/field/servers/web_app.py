"""A web application under each server: WSGI (`application`) and ASGI (`asgi`). Responses depend only on the path."""

import profiled

profiled.start()


def answer(path):
    profiled.field_work(0.02)
    return f"{path}: {sum(map(ord, path))}\n".encode()


def application(environ, start_response):
    body = answer(environ["PATH_INFO"])
    start_response("200 OK", [("Content-Type", "text/plain"), ("Content-Length", str(len(body)))])
    return [body]


async def asgi(scope, receive, send):
    if scope["type"] != "http":
        return
    body = answer(scope["path"])
    await send({"type": "http.response.start", "status": 200, "headers": [(b"content-length", str(len(body)).encode())]})
    await send({"type": "http.response.body", "body": body})
