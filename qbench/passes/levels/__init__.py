"""Values on grids as passes see them: borders with limits, functions of levels as tables, what two of them differ."""
