package runner

import (
	"context"
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"testing"

	"saltern/master/jobs"
	"saltern/master/value"
)

// TestLookUpsAskReturners (F3): a look-up that needs a returner does not read this master's own
// cache, which lacks such returns. Salt's own function performs it.
func TestLookUpsAskReturners(t *testing.T) {
	cache, err := jobs.Open(jobs.Config{Dir: t.TempDir(), HashType: "sha256"}, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	defer cache.Close(context.Background())

	for _, fun := range []string{"lookup_jid", "list_job", "print_job", "list_jobs", "list_jobs_filter",
		"exit_success", "last_run"} {
		for _, tt := range []struct {
			name, option, argument, master string
			theirs                         bool
		}{
			{"the cache", "", "", "", false},
			{"the cache by its name", "", "local_cache", "local_cache", false},
			{"ext_source", "", "mysql", "", true},
			{"ext_job_cache", "redis", "", "", true},
			{"ext_job_cache before ext_source", "redis", "local_cache", "", true},
			{"master_job_cache", "", "", "redis", true},
			{"ext_source before master_job_cache", "", "local_cache", "redis", false},
		} {
			t.Run(fun+"/"+tt.name, func(t *testing.T) {
				env := environment(nil)
				env.Jobs = cache
				env.Options.Set("ext_job_cache", tt.option)
				env.Options.Set("master_job_cache", tt.master)
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

// TestActiveAsksTheReturner which minions have returned.
func TestActiveAsksTheReturner(t *testing.T) {
	for _, option := range []string{"master_job_cache", "ext_job_cache"} {
		env := environment(nil)
		env.Options.Set(option, "redis")
		if _, err := New().Call(t.Context(), env, "jobs.active", nil, nil); !errors.Is(err, ErrUnavailable) {
			t.Errorf("%s: %v", option, err)
		}
	}
}

// TestLookUpOfABrokenLoad: a look-up shows the returns of a job whose load a power cut has damaged.
func TestLookUpOfABrokenLoad(t *testing.T) {
	const jid = "20261121000000000001"
	dir := t.TempDir()
	folder, err := jobs.Folder(dir, "", jid)
	if err == nil {
		err = os.MkdirAll(filepath.Join(folder, "m1"), 0o700)
	}

	for path, content := range map[string]string{
		".load.p":                       "",
		"jid":                           jid,
		filepath.Join("m1", "return.p"): "\x81\xa6return\xc3",
	} {
		err = errors.Join(err, os.WriteFile(filepath.Join(folder, path), []byte(content), 0o600))
	}

	cache, opened := jobs.Open(jobs.Config{Dir: dir}, slog.New(slog.DiscardHandler))
	if err = errors.Join(err, opened); err != nil {
		t.Fatal(err)
	}
	defer cache.Close(context.Background())

	env := environment(nil)
	env.Jobs = cache
	out, err := New().Call(t.Context(), env, "jobs.lookup_jid", []any{jid}, nil)
	if m, ok := out.(*value.Map); err != nil || !ok || m.Value("m1") != true {
		t.Errorf("%s, %v", value.Repr(out), err)
	}
}
