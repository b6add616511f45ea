"""A Django application with spanprof's middleware, under WSGI (`application`) and ASGI (`asgi`).

Responses depend only on the path.
"""

import asyncio

import profiled

is_profiled = profiled.start()

import django  # noqa: E402
from django.conf import settings  # noqa: E402
from django.core.handlers.asgi import ASGIHandler  # noqa: E402
from django.core.handlers.wsgi import WSGIHandler  # noqa: E402
from django.http import HttpResponse  # noqa: E402
from django.urls import path  # noqa: E402

settings.configure(
    SECRET_KEY="field",
    ROOT_URLCONF=__name__,
    ALLOWED_HOSTS=["*"],
    MIDDLEWARE=["spanprof.django.SpanprofMiddleware"] * is_profiled + ["django.middleware.common.CommonMiddleware"],
)
django.setup()


def field_cart(request, number):
    profiled.field_work(0.03)
    return HttpResponse(f"cart {number}: {number * number}\n")


def field_search(request):
    profiled.field_work(0.03)
    return HttpResponse("search\n")


async def field_later(request, number):
    await asyncio.sleep(0.01)
    profiled.field_work(0.03)
    return HttpResponse(f"later {number}\n")


urlpatterns = [
    path("cart/<int:number>", field_cart),
    path("search", field_search),
    path("later/<int:number>", field_later),
]
application, asgi = WSGIHandler(), ASGIHandler()
