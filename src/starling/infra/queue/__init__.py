"""The queue that carries runnable runs to workers: procrastinate, in the same Postgres."""
