"""The official Python client of the Model Context Protocol against `spanprof mcp`: lists the tools and calls each.

Arguments: the command line of the server.
"""

import asyncio
import json
import sys

from mcp import ClientSession, StdioServerParameters
from mcp.client import Client
from mcp.client.stdio import stdio_client

MAX_BYTES = 4096


def text_of(result):
    (content,) = result.content
    assert len(content.text.encode()) <= MAX_BYTES, len(content.text.encode())
    return content.text


async def call_each(list_tools, call_tool):
    tools = (await list_tools()).tools
    assert len(tools) >= 9, tools
    for tool in tools:
        arguments = {name: "." for name in tool.input_schema.get("required", [])}
        if tool.name == "diff":
            arguments = {"baseline": "live-mcp", "comparison": "live-mcp"}
        result = await call_tool(tool.name, arguments)
        assert not result.is_error, (tool.name, result)
        assert json.loads(text_of(result)), tool.name
    pages, cursor = 0, None
    while pages == 0 or cursor:
        arguments = {"max_bytes": 1024, **({"cursor": cursor} if cursor else {})}
        page = json.loads(text_of(await call_tool("top", arguments)))
        cursor, pages = page.get("next_cursor"), pages + 1
    refused = await call_tool("top", {"service": "absent"})
    assert refused.is_error and "no samples" in text_of(refused), refused
    return [tool.name for tool in tools], pages


async def main(command, arguments):
    server = StdioServerParameters(command=command, args=arguments)
    # The client of the newest revision, which falls back to the handshake, and the handshake itself.
    async with Client(stdio_client(server)) as client:
        newest = await call_each(client.list_tools, client.call_tool)
        revision = client.protocol_version
    async with stdio_client(server) as streams:
        async with ClientSession(*streams) as session:
            await session.initialize()
            assert await call_each(session.list_tools, session.call_tool) == newest
    print(f"revision {revision}; tools {', '.join(newest[0])}; {newest[1]} pages of 1 KiB")


asyncio.run(main(sys.argv[1], sys.argv[2:]))
