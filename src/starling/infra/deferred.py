"""The imports that adapters defer: each is heavy, and most platforms or most commands do without it."""


def openai_endpoint():
    """Return the module of models behind OpenAI-compatible endpoints. Imports aiohttp, a tenth of a start."""
    from starling.infra.llm import openai_endpoint

    return openai_endpoint


def output_reader():
    """Return the module that reads what models write. Imports its grammars, which nothing but a reply needs."""
    from starling.infra.llm import output_reader

    return output_reader


def offline_model():
    """Return the module of `offline:rules`, for platforms without a model."""
    from starling.infra.llm import offline_model

    return offline_model


def langchain_model():
    """Return the module of LangChain's models. Imports LangChain, for seconds."""
    from starling.infra.llm import langchain_model

    return langchain_model


def responses_model():
    """Return the module of models behind the Responses API. Imports LangChain, for seconds."""
    from starling.infra.llm import responses_model

    return responses_model


def langchain_vectors():
    """Return the module of LangChain's embedders. Imports LangChain, for seconds."""
    from starling.infra.embeddings import langchain_vectors

    return langchain_vectors


def embedder_factory():
    """Return the module that builds embedders. Imports numpy."""
    from starling.infra.embeddings import factory

    return factory


def context_service():
    """Return the module of the context service, for platforms that have one. Imports aiohttp."""
    from starling.infra import context_service

    return context_service


def trace_export():
    """Return the module that sends traces. Imports opentelemetry's SDK."""
    from starling.infra.tracing import export

    return export


def scores():
    """Return the module that sends scores to Langfuse. Imports httpx."""
    from starling.infra.tracing import scores

    return scores


def langfuse_api():
    """Return the client of Langfuse's API. Imports the package, for half a second: never in the event loop."""
    from langfuse import api

    return api


def langfuse_prompts():
    """Return the module of Langfuse's prompts. Imports langfuse, for most of a second."""
    from starling.infra.prompts import langfuse

    return langfuse


def run_jobs():
    """Return the module of the queue's jobs. Imports procrastinate."""
    from starling.infra.queue import run_jobs

    return run_jobs


def alembic():
    """Return Alembic's commands and configuration, for a database that has to be migrated."""
    from alembic import command, config

    return command, config


def team_building():
    """Return the module of what builds of teams are asked for. Imports the models of team specs."""
    from starling.core.teams import building

    return building


def import_models() -> None:
    """Import what most models need; for a thread, while the event loop has other work."""
    openai_endpoint()
    output_reader()
