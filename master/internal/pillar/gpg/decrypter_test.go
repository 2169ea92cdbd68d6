package gpg

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"saltern/master/value"
	"saltern/test/await"
	"saltern/test/logged"
	"saltern/test/orphan"
)

// fakeGPG is a program gpg for tests. A message says what it does.
const fakeGPG = `#!/bin/sh
echo run >>%[1]s/runs
message=$(cat)
case $message in
*HANG*) sleep 60 ;;
*SLOW*) sleep 0.3 ;;
*LARGE*) head -c 20000000 /dev/zero ;;
*KILLED*) printf half; kill -9 $$ ;;
*NOKEY*) echo '[GNUPG:] NO_SECKEY 0123' >&2; echo 'gpg: decryption failed: No secret key' >&2; exit 2 ;;
*AGENT*) if [ ! -e %[1]s/agent ]; then touch %[1]s/agent; echo "gpg: can't connect to the agent: IPC connect call failed" >&2; echo '[GNUPG:] NO_SECKEY 0123' >&2; exit 2; fi ;;
esac
printf 'opened %%s\n' "$(echo "$message" | sed -n 3p)"
`

// message returns what the fake takes for a message.
func message(text string) string { return begin + "\n\n" + text + "\n" + end }

// fake returns a Decrypter with the fake gpg, and a function that counts its runs.
func fake(t *testing.T, cfg Config) (*Decrypter, func() int) {
	t.Helper()
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "gpg"), fmt.Appendf(nil, fakeGPG, dir), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, "gpgconf"), []byte("#!/bin/sh\necho \"$@\" >>"+dir+"/conf\n"), 0o755); err != nil {
		t.Fatal(err)
	}

	cfg.Path = dir + ":" + os.Getenv("PATH")
	cfg.Keydir = dir
	d := New(cfg)
	t.Cleanup(d.Close)
	return d, func() int {
		text, _ := os.ReadFile(filepath.Join(dir, "runs"))
		return strings.Count(string(text), "run")
	}
}

func opened(t *testing.T, d *Decrypter, q *Question, text string) (any, error) {
	t.Helper()
	return d.Value(t.Context(), q, nil, message(text))
}

func mustOpen(t *testing.T, d *Decrypter, q *Question, text string) {
	t.Helper()
	if v, err := opened(t, d, q, text); err != nil || v != "opened "+text {
		t.Errorf("%s: %v, %v", text, v, err)
	}
}

// TestOneRunForAllWhoWait: those who have come before gpg runs need no run of their own. Nothing is kept
// for those who come later.
func TestOneRunForAllWhoWait(t *testing.T) {
	d, runs := fake(t, Config{AtOnce: 2})
	var waiting []*Question
	for range 3000 {
		waiting = append(waiting, d.Ask())
	}

	var wg sync.WaitGroup
	for _, q := range waiting {
		wg.Go(func() {
			defer q.End()
			for i := range 4 {
				mustOpen(t, d, q, fmt.Sprint("secret ", i))
			}
		})
	}
	wg.Wait()
	if n := runs(); n != 4 {
		t.Errorf("%d runs of gpg for four messages", n)
	}
	if s := d.Stats(); s.Runs != 4 || s.Shared != 4*3000-4 {
		t.Errorf("counted %+v", s)
	}
	if d.results.order.Len() != 0 || d.results.bytes != 0 || len(d.results.byKey) != 0 {
		t.Error("results are kept although nobody waits")
	}

	mustOpen(t, d, nil, "secret 0")
	if n := runs(); n != 5 {
		t.Errorf("%d runs, want one more for a question that came later", n)
	}
}

// TestLaterQuestionsAskAgain: a result from before a question came is not used for it.
func TestLaterQuestionsAskAgain(t *testing.T) {
	d, runs := fake(t, Config{})
	early := d.Ask()
	defer early.End()
	mustOpen(t, d, early, "x")
	late := d.Ask()
	mustOpen(t, d, early, "x")
	if n := runs(); n != 1 {
		t.Errorf("%d runs for the first question, want one", n)
	}
	mustOpen(t, d, late, "x")
	if n := runs(); n != 2 {
		t.Errorf("%d runs, want a second one for the later question", n)
	}
	late.End()
	late.End() // a second end changes nothing
	if n := d.questions.Len(); n != 1 {
		t.Errorf("%d questions wait, want one", n)
	}
}

// TestCacheIsForgotten: gpg_cache keeps secrets for a time, and less long when nobody needs any.
func TestCacheIsForgotten(t *testing.T) {
	var clock atomic.Int64
	now := func() time.Time { return time.Unix(1000+clock.Load(), 0) }
	d, runs := fake(t, Config{TTL: time.Minute, Idle: time.Hour, Now: now})
	for range 3 {
		mustOpen(t, d, nil, "x")
	}
	if n := runs(); n != 1 {
		t.Errorf("%d runs, want one", n)
	}
	clock.Store(61)
	mustOpen(t, d, nil, "x")
	if n := runs(); n != 2 {
		t.Errorf("%d runs after gpg_cache_ttl, want two", n)
	}

	idle, _ := fake(t, Config{TTL: time.Hour, Idle: 50 * time.Millisecond})
	mustOpen(t, idle, nil, "x")
	await.That(t, "nothing is kept when nobody asks", func() bool {
		idle.mu.Lock()
		defer idle.mu.Unlock()
		return idle.results.order.Len() == 0
	})
}

// TestFailures: what gpg does not decrypt is said, and what it could not do now is told apart.
func TestFailures(t *testing.T) {
	logs := &logged.Buffer{}
	log := slog.New(slog.NewTextHandler(logs, nil))
	d, runs := fake(t, Config{MustSucceed: true, Log: log})
	_, err := opened(t, d, nil, "NOKEY")
	failure, ok := errors.AsType[*Failure](err)
	if !ok || failure.Reason != "decryption failed: No secret key (made for key 0123)" || Unable(err) {
		t.Errorf("no key: %v", err)
	}
	if !strings.HasPrefix(err.Error(), `Could not decrypt cipher b'-----BEGIN PGP MESSAGE-----\n\nNOKEY\n-----END PGP MESSAGE-----', received: b'[GNUPG:] NO_SECKEY 0123\n`) {
		t.Errorf("the text is not Salt's: %v", err)
	}
	if n := runs(); n != 1 {
		t.Errorf("%d runs, want one", n)
	}

	mustOpen(t, d, nil, "AGENT") // gone once
	if _, err := opened(t, d, nil, "LARGE"); Unable(err) || !strings.Contains(err.Error(), "more than 16777216 bytes") {
		t.Errorf("a large secret: %.200v", err)
	}
	if v, err := opened(t, d, nil, "KILLED"); !Unable(err) || strings.Contains(fmt.Sprint(v), "half") {
		t.Errorf("a killed gpg: %v, %v", v, err)
	}

	if text := logs.String(); strings.Contains(text, "opened") || strings.Count(text, "No secret key") != 1 {
		t.Errorf("the log has %s", text)
	}
}

// TestHangs: a gpg that hangs is ended, and no other is begun for a while: each would hold a turn.
func TestHangs(t *testing.T) {
	d, runs := fake(t, Config{Takes: 300 * time.Millisecond})
	if _, err := opened(t, d, nil, "HANG"); !Unable(err) {
		t.Errorf("a gpg that hangs: %v", err)
	}
	if _, err := opened(t, d, nil, "HANG"); !errors.Is(err, errHangs) {
		t.Errorf("the same message again: %v", err)
	}
	mustOpen(t, d, nil, "other")
	if n := runs(); n != 2 {
		t.Errorf("%d runs, want one for each message", n)
	}

	for _, text := range []string{"HANG 2", "HANG 3"} {
		if _, err := opened(t, d, nil, text); !Unable(err) {
			t.Errorf("a gpg that hangs: %v", err)
		}
	}
	if _, err := opened(t, d, nil, "last"); !errors.Is(err, errHangs) {
		t.Errorf("after two messages on which gpg hangs: %v", err)
	}
	if n := runs(); n != 4 {
		t.Errorf("%d runs, want none for the last message", n)
	}
}

// TestHangingKeydir: a keyring on a file system that hangs holds up neither those who ask nor the end.
func TestHangingKeydir(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		d, runs := fake(t, Config{})
		cleans := make(chan struct{}, 10)
		free := make(chan struct{})
		d.removeLocks = func(string) {
			cleans <- struct{}{}
			<-free
		}
		defer close(free)

		if _, err := opened(t, d, nil, "x"); !errors.Is(err, errHangs) || !Unable(err) {
			t.Errorf("a keyring that hangs: %v", err)
		}
		ended := make(chan error)
		go func() {
			_, err := opened(t, d, nil, "y")
			ended <- err
		}()
		synctest.Wait()

		began := time.Now()
		closed := make(chan time.Duration, 1)
		go func() {
			d.Close()
			closed <- time.Since(began)
		}()
		if err := <-ended; !errors.Is(err, errClosed) {
			t.Errorf("who waits when the master stops gets %v", err)
		}
		if took := <-closed; took > 2*endTakes {
			t.Errorf("Close takes %v", took)
		}
		if len(cleans) != 1 || runs() != 0 {
			t.Errorf("%d goroutines remove locks, %d runs of gpg", len(cleans), runs())
		}
	})
}

// TestUnopenedStays: with gpg_decrypt_must_succeed off the message stays as Salt leaves it.
func TestUnopenedStays(t *testing.T) {
	d, _ := fake(t, Config{})
	in := value.NewMap("a", "x "+strings.ReplaceAll(message("NOKEY"), "\n", `\n`)+" y\n\n", message("NOKEY"), int64(1))
	out, err := d.Value(t.Context(), nil, nil, in)
	want := "x " + message("NOKEY") + " y"
	if m, ok := out.(*value.Map); err != nil || !ok || m.Str("a") != want {
		t.Errorf("%v, %v", out, err)
	}
	if in.Str("a") == want {
		t.Error("the value itself was changed")
	}
}

// TestCallersLeave: a run for which nobody waits any more ends, and the next caller gets a new one.
func TestCallersLeave(t *testing.T) {
	d, runs := fake(t, Config{})
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error)
	go func() {
		_, err := d.Value(ctx, nil, nil, message("HANG"))
		done <- err
	}()
	await.That(t, "gpg runs", func() bool { return runs() == 1 })
	cancel()
	if err := <-done; !errors.Is(err, context.Canceled) {
		t.Errorf("the caller gets %v", err)
	}
	await.That(t, "its run ends", func() bool { return len(d.slots) == 0 })
	mustOpen(t, d, nil, "SLOW")
}

// TestTurn: nobody waits for gpg without a turn, and nobody takes one for what is known.
func TestTurn(t *testing.T) {
	d, runs := fake(t, Config{})
	q := d.Ask()
	defer q.End()
	refused := errors.New("no turn")
	if _, err := d.Value(t.Context(), q, func() error { return refused }, []any{"plain", message("x")}); !errors.Is(err, refused) {
		t.Errorf("without a turn: %v", err)
	}
	if n := runs(); n != 0 {
		t.Errorf("%d runs without a turn", n)
	}
	mustOpen(t, d, q, "x")
	if _, err := d.Value(t.Context(), q, func() error { return refused }, message("x")); err != nil {
		t.Errorf("of a known message: %v", err)
	}
}

// TestClose: gpg ends, then its agent, and nothing begins any more.
func TestClose(t *testing.T) {
	d, runs := fake(t, Config{})
	done := make(chan error)
	go func() {
		_, err := d.Value(t.Context(), nil, nil, message("HANG"))
		done <- err
	}()
	await.That(t, "gpg runs", func() bool { return runs() == 1 })
	d.Close()
	if err := <-done; !Unable(err) {
		t.Errorf("the caller gets %v", err)
	}
	if _, err := opened(t, d, nil, "x"); !errors.Is(err, errClosed) {
		t.Errorf("after the end: %v", err)
	}
	text, err := os.ReadFile(filepath.Join(d.cfg.Keydir, "conf"))
	if want := "--homedir " + d.cfg.Keydir + " --kill gpg-agent\n"; string(text) != want {
		t.Errorf("the agent gets %q, %v", text, err)
	}
}

// TestStaleLocks: locks of processes that are gone are removed, and no others.
func TestStaleLocks(t *testing.T) {
	host, err := os.Hostname()
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	stays := []string{fmt.Sprintf(".#lk0x0123.%s.%d", host, os.Getpid()), ".#lk0x0123.elsewhere.999999999", "pubring.kbx", ".#lk0x01." + host + ".x"}
	for _, name := range append(stays, ".#lk0x0abc."+host+".999999999") {
		if err := os.WriteFile(filepath.Join(dir, name), nil, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	removeStaleLocks(dir)
	left, err := os.ReadDir(dir)
	if err != nil || len(left) != len(stays) {
		t.Errorf("left are %v, %v", left, err)
	}
}

// TestLongKeydir: that the agent cannot make its sockets is said with the cause.
func TestLongKeydir(t *testing.T) {
	const words = "gpg: failed to start agent '/usr/bin/gpg-agent': General error\n"
	for length, tooLong := range map[int]bool{86: false, 87: true} {
		d := New(Config{Keydir: "/" + strings.Repeat("x", length-1)})
		if reason := d.reason(words); strings.Contains(reason, "at most 86 bytes") != tooLong {
			t.Errorf("%d bytes: %s", length, reason)
		}
		d.Close()
	}
}

// TestEnvironment: gpg has the environment of the master, as beneath Salt's renderer.
func TestEnvironment(t *testing.T) {
	t.Setenv("XDG_RUNTIME_DIR", "/run/user/1")
	t.Setenv("NOTIFY_SOCKET", "/run/x")
	d := New(Config{})
	defer d.Close()
	if env := d.env(); !slices.Contains(env, "XDG_RUNTIME_DIR=/run/user/1") || slices.Contains(env, "NOTIFY_SOCKET=/run/x") {
		t.Errorf("gpg gets %q", env)
	}
}

func TestUnavailable(t *testing.T) {
	d := New(Config{Path: t.TempDir()})
	defer d.Close()
	if _, err := d.Value(t.Context(), nil, nil, "no message at all"); !errors.Is(err, ErrUnavailable) || Unable(err) {
		t.Errorf("without gpg: %v", err)
	}
}

// TestGPGEndsWithTheMaster kills a process that runs gpg.
func TestGPGEndsWithTheMaster(t *testing.T) {
	orphan.Check(t, "gpg", func(path string) {
		d := New(Config{Path: path, Keydir: t.TempDir(), Takes: time.Hour})
		_, err := d.Value(t.Context(), nil, nil, message("x"))
		t.Error(err)
	})
}
