"""The engine host: resident engines, disposable trials, and the clock that times them."""
