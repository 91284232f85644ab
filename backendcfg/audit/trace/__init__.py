"""What each operation of a program computed: written by the program, compared from run to run."""
