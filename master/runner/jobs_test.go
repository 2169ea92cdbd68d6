package runner

import (
	"context"
	"errors"
	"log/slog"
	"testing"

	"saltern/master/jobs"
	"saltern/master/value"
)

// TestLookUpsAskReturners (F3): a look-up that is to ask a returner does not answer from this
// master's own cache, which has no such returns. It is left to Salt's own function.
func TestLookUpsAskReturners(t *testing.T) {
	cache, err := jobs.Open(jobs.Config{Dir: t.TempDir(), HashType: "sha256"}, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	defer cache.Close(context.Background())
	for _, fun := range []string{"lookup_jid", "list_job", "print_job", "list_jobs", "list_jobs_filter", "exit_success", "last_run"} {
		for _, tt := range []struct {
			name, option, argument string
			theirs                 bool
		}{
			{"the cache", "", "", false},
			{"the cache by its name", "", "local_cache", false},
			{"ext_source", "", "mysql", true},
			{"ext_job_cache", "redis", "", true},
			{"ext_job_cache before ext_source", "redis", "local_cache", true},
		} {
			t.Run(fun+"/"+tt.name, func(t *testing.T) {
				env := environment(nil)
				env.Jobs = cache
				env.Options.Set("ext_job_cache", tt.option)
				named := value.NewMap("ext_source", tt.argument)
				switch fun {
				case "list_jobs", "last_run":
				case "list_jobs_filter":
					named.Set("count", 1)
				default:
					named.Set("jid", "20260101000000000000")
				}
				if fun == "list_jobs_filter" {
					ours := named.Clone()
					ours.Set("filter_runs", true)
					if _, err := New().Call(t.Context(), env, "jobs."+fun, nil, ours); err != nil {
						t.Errorf("as our own pages ask, by an argument that Salt's function does not have: %v", err)
					}
				}
				_, err := New().Call(t.Context(), env, "jobs."+fun, nil, named)
				if got := errors.Is(err, ErrUnavailable); got != tt.theirs {
					t.Errorf("left to Salt's function: %v, want %v: %v", got, tt.theirs, err)
				}
			})
		}
	}
}
