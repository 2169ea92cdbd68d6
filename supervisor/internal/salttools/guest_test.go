package salttools

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"saltern/internal/control/toolrun"
	"saltern/master/value"
	"saltern/test/fakemaster"
)

// guest has a program of a shell in the place of the tools.
func guest(t *testing.T, script string) *Guest {
	t.Helper()
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "salt"), []byte("#!/bin/sh\n"+script), 0o755); err != nil {
		t.Fatal(err)
	}
	m := fakemaster.New(t)
	m.Clear = func(load *value.Map) any { return load }
	return NewGuest(Tools{
		Master: filepath.Join(dir, "salt-master"),
		Config: "/conf",
		Env:    []string{"PATH=/usr/bin:/bin"},
	}, nil,
		net.JoinHostPort("127.0.0.1", strconv.Itoa(m.Port)))
}

var ping = toolrun.Request{Tool: "salt", Words: []string{"web1", "test.ping", "pillar={x: secret}"}, User: "root"}

// The tool gets its request on standard input, where nobody else sees it, and what it
// prints is passed on, with its exit code at the end.
func TestGuest(t *testing.T) {
	g := guest(t, `echo "$@"; cat; echo no >&2; exit 11`)
	run, err := g.Prepare(t.Context(), ping)
	if err != nil {
		t.Fatal(err)
	}

	var b bytes.Buffer
	run(t.Context(), &b)
	said := map[toolrun.Kind]string{}
	for {
		k, data, err := toolrun.ReadFrame(&b)
		if err != nil {
			t.Fatal(err)
		}

		said[k] += string(data)
		if k == toolrun.Exit {
			break
		}
	}

	body, err := ping.Encode()
	if err != nil {
		t.Fatal(err)
	}

	if want := "/conf\n" + string(body); said[toolrun.Stdout] != want || said[toolrun.Stderr] != "no\n" ||
		said[toolrun.Exit] != "\x0b" || b.Len() != 0 {
		t.Errorf("got %q and %d bytes, want %q", said, b.Len(), want)
	}

	if len(g.slots) != 0 {
		t.Error("the place is still taken")
	}
}

// gone is a reader that has left.
type gone struct{}

func (gone) Write([]byte) (int, error) { return 0, io.ErrClosedPipe }

// A tool whose reader has left is ended, whether it says something or not.
func TestGuestLeft(t *testing.T) {
	g := guest(t, "echo first; exec sleep 1000")
	run, err := g.Prepare(t.Context(), ping)
	if err != nil {
		t.Fatal(err)
	}

	run(t.Context(), gone{})
	if run, err = g.Prepare(t.Context(), ping); err != nil {
		t.Fatal(err)
	}

	ctx, cancel := context.WithCancel(t.Context())
	in, out := io.Pipe()
	go func() {
		_, _, _ = toolrun.ReadFrame(in)
		cancel()
		_, _ = io.Copy(io.Discard, in)
	}()

	run(ctx, out)
	_ = out.Close()
}

// So many run at once; and none when the master here is no better.
func TestGuestRefuses(t *testing.T) {
	g := guest(t, "exit 0")
	var first func(context.Context, io.Writer)
	for i := range toolrun.MaxRuns {
		run, err := g.Prepare(t.Context(), ping)
		if err != nil {
			t.Fatal(i, err)
		}
		first = run
	}

	if _, err := g.Prepare(t.Context(), ping); !errors.Is(err, errFull) {
		t.Errorf("one more: %v", err)
	}

	first(t.Context(), io.Discard)
	if _, err := g.Prepare(t.Context(), ping); err != nil {
		t.Errorf("after one: %v", err)
	}

	if _, err := guest(t, "").Prepare(t.Context(), toolrun.Request{Tool: "sh", User: "root"}); err == nil {
		t.Error("another program was taken")
	}

	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer ln.Close()

	silent := NewGuest(g.tools, nil, ln.Addr().String())
	if _, err := silent.Prepare(t.Context(), ping); err == nil ||
		!strings.Contains(err.Error(), "does not answer either") || len(silent.slots) != 0 {
		t.Errorf("with a silent master: %v", err)
	}

	missing := guest(t, "")
	missing.tools.Master = "/no/such/salt-master"
	run, err := missing.Prepare(t.Context(), ping)
	if err != nil {
		t.Fatal(err)
	}

	var b bytes.Buffer
	run(t.Context(), &b)
	if k, data, err := toolrun.ReadFrame(&b); err != nil || k != toolrun.Stderr ||
		!strings.Contains(string(data), "no such file") {
		t.Errorf("%c %q %v", k, data, err)
	}

	if k, data, err := toolrun.ReadFrame(&b); err != nil || k != toolrun.Exit || data[0] != exitNotStarted {
		t.Errorf("%c %q %v", k, data, err)
	}
}
