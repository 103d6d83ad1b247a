"""The composition root: the only package that builds engines, repositories and services.

It has a module for each set of imports: `admin` needs neither langgraph nor mcp, which take most of a command's start.
"""
