package notify

import (
	"slices"
	"strings"
	"testing"
	"time"

	"saltern/master/internal/notify/rules"
	"saltern/master/value"
)

// TestReturnsOfSeveralFunctions checks that a job of several functions has an alert only if one of them failed, that
// the alert names which, and that a rule for one of them gets it.
func TestReturnsOfSeveralFunctions(t *testing.T) {
	t.Parallel()
	failedRule := rules.Rules{{Name: "failed", On: []rules.Kind{rules.Failed}, Functions: []string{"state.*"}}}
	s := &Service{cfg: Config{Rules: failedRule, Now: time.Now}}
	bad := value.NewMap("test_|-bad_|-bad_|-nop", value.NewMap("result", false, "comment", "no"))
	good := value.NewMap("test_|-good_|-good_|-nop", value.NewMap("result", true))

	for _, tt := range []struct {
		name           string
		functions      []any
		ret            any
		codes, success any
		title          string // "": no alert
		line           string
	}{
		{
			name:      "all well",
			functions: []any{"test.ping", "state.apply"},
			ret:       value.NewMap("test.ping", true, "state.apply", good),
			codes:     value.NewMap("test.ping", int64(0), "state.apply", int64(0)),
			success:   value.NewMap("test.ping", true, "state.apply", true),
		},
		{
			name:      "all well, in order",
			functions: []any{"test.version", "state.apply"},
			ret:       []any{"3008.3", good},
			codes:     []any{int64(0), int64(0)},
			success:   []any{true, true},
		},
		{
			name:      "states failed",
			functions: []any{"test.ping", "state.apply"},
			ret:       value.NewMap("test.ping", true, "state.apply", bad),
			codes:     value.NewMap("test.ping", int64(0), "state.apply", int64(2)),
			success:   value.NewMap("test.ping", true, "state.apply", false),
			title:     "test.ping,state.apply failed on web1: 1 of 1 states",
			line:      "bad",
		},
		{
			name:      "states failed, in order",
			functions: []any{"test.ping", "state.apply"},
			ret:       []any{true, bad},
			codes:     []any{int64(0), int64(2)},
			success:   []any{true, false},
			title:     "test.ping,state.apply failed on web1: 1 of 1 states",
			line:      "bad",
		},
		{
			name:      "no such function",
			functions: []any{"nosuch.fun", "state.apply"},
			ret:       value.NewMap("nosuch.fun", "KeyError", "state.apply", good),
			codes:     value.NewMap("state.apply", int64(0)),
			success:   value.NewMap("nosuch.fun", false, "state.apply", true),
			title:     "nosuch.fun,state.apply failed on web1",
			line:      "nosuch.fun: KeyError",
		},
		{
			name:      "no rule",
			functions: []any{"nosuch.fun", "test.ping"},
			ret:       value.NewMap("nosuch.fun", "KeyError", "test.ping", true),
			success:   value.NewMap("nosuch.fun", false, "test.ping", true),
		},
	} {
		t.Run(tt.name, func(t *testing.T) {
			load := value.NewMap("id", "web1", "jid", "20261129000000000001", "fun", tt.functions, "return", tt.ret,
				"success", tt.success)
			if tt.codes != nil {
				load.Set("retcode", tt.codes)
			}
			a, failed := s.ofReturn(load)
			if failed != (tt.title != "") || a.Title != tt.title {
				t.Fatalf("failed %t: %q, want %q", failed, a.Title, tt.title)
			}
			if failed && !slices.ContainsFunc(a.Lines, func(line string) bool { return strings.HasPrefix(line, tt.line) }) {
				t.Errorf("lines %q, want %q", a.Lines, tt.line)
			}
			if failed && !failedRule.Matches(a.Subject()) {
				t.Error("the rule does not get the alert")
			}
		})
	}
}

// TestCutListOfFunctionsMatches checks that no alert is lost because its list of functions is too long.
func TestCutListOfFunctionsMatches(t *testing.T) {
	t.Parallel()
	failedRule := rules.Rules{{Name: "failed", On: []rules.Kind{rules.Failed}, Functions: []string{"state.*"}}}
	s := &Service{cfg: Config{Rules: failedRule, Now: time.Now}}
	var functions []any
	for range 300 {
		functions = append(functions, "test.ping")
	}
	load := value.NewMap("id", "web1", "jid", "20261129000000000001", "fun", append(functions, "state.apply"),
		"return", value.NewMap(), "success", value.NewMap("state.apply", false))
	if a, failed := s.ofReturn(load); !failed || !a.Clean() || !failedRule.Matches(a.Subject()) {
		t.Errorf("failed %t, %d bytes of functions", failed, len(a.Function))
	}
}
