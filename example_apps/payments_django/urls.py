"""Where the payments API is."""

from __future__ import annotations

from django.urls import path

from example_apps.payments_django import views

urlpatterns = [
    path("charges", views.charges),
    path("charges/<int:charge>/refund", views.refund),
]
