"""The middleware for Django with a real Django: routes, sync and async views, WSGI and ASGI."""

from __future__ import annotations

import asyncio
import sys
import types

import pytest
from spanprof import _spanprof as native

django = pytest.importorskip("django")

from django.conf import settings  # noqa: E402
from django.http import HttpResponse  # noqa: E402
from django.urls import include, path, re_path  # noqa: E402

contexts: list = []


def view(request, *_groups, **_parts):
    contexts.append(native.describe())
    return HttpResponse("ok")


async def async_view(request, **_parts):
    await asyncio.sleep(0)
    return view(request)


def failing_view(request):
    view(request)
    raise KeyError("mine")


urls = types.ModuleType("urls_of_test_django")
urls.urlpatterns = [
    path("cart/<int:number>/", view),
    path("async/<slug:name>", async_view),
    path("shop/", include([path("items/", view)])),
    re_path(r"^old/(\d+)$", view),
    path("fail/", failing_view),
    path("", view),
]
sys.modules["urls_of_test_django"] = urls
settings.configure(
    ROOT_URLCONF="urls_of_test_django",
    MIDDLEWARE=["spanprof.django.SpanprofMiddleware", "django.middleware.common.CommonMiddleware"],
    ALLOWED_HOSTS=["*"],
    LOGGING_CONFIG=None,
)
django.setup()

from django.test import AsyncClient, Client  # noqa: E402

ROUTES = {
    "/cart/7/": "/cart/<int:number>/",
    "/async/tea": "/async/<slug:name>",
    "/shop/items/": "/shop/items/",
    "/old/12": r"^old/(\d+)$",
    "/": "/",
}


def take_labels() -> list[dict]:
    labels = [context["labels"] for context in contexts]
    contexts.clear()
    return labels


@pytest.mark.parametrize("requested", ROUTES)
def test_a_request_carries_its_method_and_route_under_wsgi(requested):
    assert Client().get(requested).status_code == 200
    assert take_labels() == [{"http.request.method": "GET", "http.route": ROUTES[requested]}]
    assert native.current() == 0


@pytest.mark.parametrize("requested", ROUTES)
def test_a_request_carries_its_method_and_route_under_asgi(requested):
    async def request() -> None:
        assert (await AsyncClient().get(requested)).status_code == 200
        assert native.current() == 0

    asyncio.run(request())
    assert take_labels() == [{"http.request.method": "GET", "http.route": ROUTES[requested]}]


def test_interleaved_requests_each_carry_their_own_route():
    async def main() -> None:
        client = AsyncClient()
        await asyncio.gather(*(client.get("/async/tea" if number % 2 else "/cart/7/") for number in range(40)))

    asyncio.run(main())
    routes = [labels["http.route"] for labels in take_labels()]
    assert sorted(routes) == sorted(["/async/<slug:name>", "/cart/<int:number>/"] * 20)


def test_a_view_that_raises_leaves_no_labels_and_its_exception_is_djangos():
    with pytest.raises(KeyError, match="mine"):
        Client().get("/fail/")
    assert take_labels() == [{"http.request.method": "GET", "http.route": "/fail/"}]
    assert native.current() == 0


def test_a_path_without_a_route_and_a_trace_of_the_caller():
    assert Client().get("/nowhere").status_code == 404
    assert native.current() == 0
    trace = "0af7651916cd43dd8448eb211c80319c"
    Client().get("/", headers={"traceparent": f"00-{trace}-b7ad6b7169203331-01"})
    assert [context["trace_id"] for context in contexts] == [trace]
    contexts.clear()
