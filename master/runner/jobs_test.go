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

// olderJobs has one job, and counts who asks for others.
type olderJobs struct {
	asked []string
	err   error
}

const olderJID = "20260101000000000000"

func (o *olderJobs) Job(_ context.Context, jid string) (load, returns *value.Map, err error) {
	o.asked = append(o.asked, jid)
	if jid != olderJID || o.err != nil {
		return nil, &value.Map{}, o.err
	}
	load = value.NewMap("fun", "test.ping", "tgt", "*", "user", "alice")
	return load, value.NewMap("web1", value.NewMap("return", "pong", "retcode", int64(0))), nil
}

// A job that the job cache has is never asked for elsewhere, nor is one of a caller who names the cache.
func TestLookUpsOfOlderJobs(t *testing.T) {
	older := &olderJobs{}
	env := environment(nil)
	env.Jobs = lab(t)
	env.Older = older
	call := func(fun string, kv ...any) *value.Map {
		t.Helper()
		v, err := New().Call(t.Context(), env, fun, nil, value.NewMap(kv...))
		if err != nil {
			t.Fatal(err)
		}
		return v.(*value.Map)
	}

	if got := call("jobs.lookup_jid", "jid", olderJID); got.Str("web1") != "pong" {
		t.Errorf("lookup_jid: %s", value.Repr(got))
	}
	got := call("jobs.list_job", "jid", olderJID)
	if got.Str("Function") != "test.ping" || got.Str("User") != "alice" || got.Map("Result").Len() != 1 || got.Str("Error") != "" {
		t.Errorf("list_job: %s", value.Repr(got))
	}
	if got := call("jobs.exit_success", "jid", olderJID); !got.Bool("web1") {
		t.Errorf("exit_success: %s", value.Repr(got))
	}
	if n := len(older.asked); n != 3 {
		t.Errorf("asked %d times", n)
	}

	older.asked = nil
	call("jobs.list_job", "jid", "20261121080509316776")
	call("jobs.list_job", "jid", olderJID, "ext_source", "local_cache")
	call("jobs.list_job", "jid", "none")
	if len(older.asked) != 0 {
		t.Errorf("asked for %q", older.asked)
	}

	older.err = errors.New("it is away")
	got = call("jobs.list_job", "jid", olderJID)
	if text := got.Str("Error"); text != "Cannot contact returner or no job with this jid: it is away" || got.Map("Result") == nil {
		t.Errorf("away: %s", value.Repr(got))
	}
	if got := call("jobs.lookup_jid", "jid", olderJID); got.Len() != 0 {
		t.Errorf("away: %s", value.Repr(got))
	}
}
