#!/usr/bin/env python3
"""Streams two stories over one WebSocket of a local `troupe serve`. Needs PyPI's websockets."""

import asyncio
import json

import websockets


async def main():
    async with websockets.connect("ws://127.0.0.1:8080/v1/ws") as ws:
        for name in ("fox", "owl"):
            await ws.send(json.dumps({
                "type": "generate", "id": name, "max_tokens": 100,
                "messages": [{"role": "user", "content": f"Tell me a story about the {name}"}]}))
        running = 2
        while running:
            event = json.loads(await ws.recv())
            if event["type"] == "token":
                print(event["id"], repr(event["text"]))
            else:  # "done", with usage and timings, or "error"
                print(event)
                running -= 1


asyncio.run(main())
