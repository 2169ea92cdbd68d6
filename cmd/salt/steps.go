package main

import (
	_ "embed"
	"slices"

	"saltern/cmd/internal/tty"
	"saltern/master/pyrunner"
)

// stepsScript runs Python's salt-run and prints the steps of an orchestration as they end.
//
//go:embed steps.py
var stepsScript string

// orchestrations lists the runners whose steps salt-run prints (salt/runners/state.py).
var orchestrations = []string{
	"state.orchestrate", "state.orch", "state.sls", "state.orchestrate_high", "state.orchestrate_single",
}

// outputsForPeople lists the outputters beside which salt-run prints steps.
var outputsForPeople = []string{"", "highstate", "nested"}

// showsSteps reports whether a person watches the call, so that salt-run prints the steps of an
// orchestration: standard error is a terminal, and the output is not for a program.
func (r *runCall) showsSteps() bool {
	if !tty.Is(r.stderr) {
		return false
	}
	if len(r.args) == 0 || !slices.Contains(orchestrations, r.args[0]) {
		return false
	}

	quiet := r.values.Bool("quiet") || r.values.Bool("async") || r.values.Bool("doc")
	return !quiet && slices.Contains(outputsForPeople, r.values.Str("output"))
}

// pythonCommand returns the program that runs Python's salt-run at path, and its arguments,
// including the name of the program. It is that salt-run itself, or stepsScript in its interpreter
// if the call shows steps and the interpreter is known.
func (r *runCall) pythonCommand(path string) (program string, args []string) {
	if r.showsSteps() {
		if python := pyrunner.Of(path); python != "" {
			return python, append([]string{python, "-c", stepsScript, path}, r.words...)
		}
	}
	return path, append([]string{path}, r.words...)
}
