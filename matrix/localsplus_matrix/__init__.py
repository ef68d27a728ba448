"""Provides every interpreter localsplus supports, and runs its tests on each of them."""
