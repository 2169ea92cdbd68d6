package minion

import (
	"context"
	"os"
	"testing"
	"time"

	"saltern/master/history/summary"
	"saltern/master/internal/request"
	"saltern/master/jobs"
	"saltern/master/keys"
	"saltern/master/value"
	"saltern/test/check"
)

// fakeRevisions answers with how it was asked, and remembers for which time.
type fakeRevisions struct{ began time.Time }

func (f *fakeRevisions) Latest(began time.Time) string {
	f.began = began
	return "latest"
}

func (f *fakeRevisions) Served(_ context.Context, began time.Time) string {
	f.began = began
	return "looked"
}

func TestRevisionOfAReturn(t *testing.T) {
	now := time.Date(2026, 11, 29, 12, 0, 0, 0, time.UTC)
	started := now.Add(-5 * time.Minute)
	state := func(result, changes any) *value.Map {
		return value.NewMap("test_|-a_|-a_|-nop",
			value.NewMap("result", result, "changes", changes, "duration", 2000.0))
	}
	some := value.NewMap("x", 1)
	pki := t.TempDir()
	check.Must(t, os.MkdirAll(pki+"/minions", 0o700))
	check.Must(t, os.WriteFile(pki+"/minions/web1", []byte("key of web1\n"), 0o600))
	store, err := keys.Open(pki, keys.Config{Create: true})
	check.Must(t, err)

	for _, tt := range []struct {
		name    string
		fun     any
		id      string
		ret     any
		adopted bool
		want    any
		began   time.Time
	}{
		{"nothing changed", "state.apply", "web1", state(true, &value.Map{}), false, "latest", started},
		{"changed", "state.apply", "web1", state(true, some), false, "looked", started},
		{"would change", "state.apply", "web1", state(nil, &value.Map{}), false, "looked", started},
		{"several functions", []any{"test.ping", "state.apply"}, "web1",
			value.NewMap("test.ping", true, "state.apply", state(true, some)), false, "looked", started},
		{"several functions in order", []any{"test.ping", "state.apply"}, "web1",
			[]any{true, state(true, &value.Map{})}, false, "latest", started},
		{"several without states", []any{"test.ping", "test.version"}, "web1",
			value.NewMap("test.ping", true, "test.version", "3008.3"), false, nil, time.Time{}},
		{"salt-call", "state.apply", "web1", state(true, some), true, "looked", now.Add(-time.Minute - 2*time.Second)},
		{"below a syndic", "state.apply", "lower", state(true, some), false, nil, time.Time{}},
		{"errors", "state.apply", "web1", []any{"no"}, false, nil, time.Time{}},
		{"no states", "test.ping", "web1", true, false, nil, time.Time{}},
		{"forged", "test.ping", "web1", true, false, nil, time.Time{}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			fake := &fakeRevisions{}
			s := &Service{cfg: Config{
				Keys:      store,
				Revisions: fake,
				Now:       func() time.Time { return now },
			}}
			load := value.NewMap("fun", tt.fun, "jid", jobs.FromTime(started), "return", tt.ret,
				summary.RevisionField, "of the minion")
			kept := s.withRevision(t.Context(), &request.Call{ID: tt.id, Load: load}, tt.adopted)

			if got := kept.Value(summary.RevisionField); got != tt.want {
				t.Errorf("revision %v, want %v", got, tt.want)
			}
			if !fake.began.Equal(tt.began) {
				t.Errorf("asked for a run since %v, want %v", fake.began, tt.began)
			}
			if _, ok := load.Get(summary.RevisionField); ok {
				t.Error("the event has the revision")
			}
			if ret := jobs.ReturnOf(kept); ret.Data.Value(summary.RevisionField) != tt.want {
				t.Error("the job cache does not get the revision")
			}
		})
	}
}
