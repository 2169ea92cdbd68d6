package main

import (
	"testing"

	"saltern/internal/control"
	"saltern/supervisor/status"
)

func TestExitOfExplanation(t *testing.T) {
	for name, tt := range map[string]struct {
		answers bool
		code    string
		want    int
	}{
		"answers":       {true, "answers", status.ExitHealthy},
		"not connected": {false, "not connected", status.ExitDegraded},
		"was not asked": {false, control.NotAsked, status.ExitUnknown},
	} {
		t.Run(name, func(t *testing.T) {
			e := control.Explanation{Answers: tt.answers, Causes: []control.Cause{{Code: tt.code}}}
			if got := exitOfExplanation(e); got != tt.want {
				t.Errorf("exit code %d, want %d", got, tt.want)
			}
		})
	}
}
