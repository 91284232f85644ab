"""What a flag, a profile, a host and a plan are: Pydantic models, and nothing that acts.

Imported only by code that validates or resolves. Starting a process with a compiled plan must not
import this package, because Pydantic costs more than the whole start-up budget.
"""
