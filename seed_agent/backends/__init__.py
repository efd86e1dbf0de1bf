"""Language models behind the ``Policy`` interface; each module is imported when it is asked for."""
