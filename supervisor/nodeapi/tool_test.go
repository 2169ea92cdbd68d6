package nodeapi

import (
	"context"
	"errors"
	"io"
	"net"
	"sync"
	"testing"

	"saltern/internal/control/toolrun"
	"saltern/supervisor/nodes"
)

var ping = toolrun.Request{Tool: "salt", Words: []string{"*", "test.ping"}, User: "root"}

// A member has a tool run by another one: what it prints comes as it is printed, and
// the run ends when nobody reads it any more.
func TestRunTool(t *testing.T) {
	c := startNode(t)
	member := identity(t)
	c.mu.Lock()
	c.table.Put(nodes.Node{Name: "n2", Address: "127.0.70.2", State: nodes.Member, Certificate: member.Hash})
	c.mu.Unlock()

	left := make(chan struct{})
	c.tool = func(_ context.Context, r toolrun.Request) (func(context.Context, io.Writer), error) {
		if r.Words[0] == "none" {
			return nil, errors.New("too many")
		}

		return func(ctx context.Context, w io.Writer) {
			if err := toolrun.WriteFrame(w, toolrun.Stdout, []byte(r.User+" "+r.Words[1])); err != nil {
				t.Error(err)
			}

			if r.Words[0] == "long" {
				<-ctx.Done()
				close(left)
				return
			}

			_ = toolrun.WriteFrame(w, toolrun.Exit, []byte{11})
		}, nil
	}

	client := NewClient(member, c.address, c.id.Hash)
	defer client.Close()
	first := func(q toolrun.Request) io.ReadCloser {
		frames, err := client.RunTool(t.Context(), q)
		if err != nil {
			t.Fatal(err)
		}

		if k, data, err := toolrun.ReadFrame(frames); err != nil || k != toolrun.Stdout ||
			string(data) != "root test.ping" {
			t.Fatalf("%c %q %v", k, data, err)
		}

		return frames
	}

	frames := first(ping)
	if k, data, err := toolrun.ReadFrame(frames); err != nil || k != toolrun.Exit || data[0] != 11 {
		t.Errorf("%c %q %v", k, data, err)
	}

	if _, _, err := toolrun.ReadFrame(frames); !errors.Is(err, io.ErrUnexpectedEOF) {
		t.Errorf("after the end: %v", err)
	}

	_ = frames.Close()
	frames = first(toolrun.Request{Tool: "salt", Words: []string{"long", "test.ping"}, User: "root"})
	_ = frames.Close()
	<-left

	for name, q := range map[string]toolrun.Request{
		"refused there": {
			Tool:  "salt",
			Words: []string{"none"},
			User:  "root",
		}, "refused here": {Tool: "sh", User: "root"},
	} {
		if _, err := client.RunTool(t.Context(), q); !errors.Is(err, ErrNotRun) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// Only when it is sure that the tool has not run may another node be asked.
func TestToolNotRun(t *testing.T) {
	c := startNode(t)
	member := identity(t)
	c.mu.Lock()
	c.table.Put(nodes.Node{Name: "n2", Address: "127.0.70.2", State: nodes.Member, Certificate: member.Hash})
	c.mu.Unlock()

	c.tool = func(context.Context, toolrun.Request) (func(context.Context, io.Writer), error) {
		panic(net.ErrClosed) // it had begun, and then the node ended
	}
	client := NewClient(member, c.address, c.id.Hash)
	defer client.Close()

	if _, err := client.RunTool(t.Context(), ping); err == nil || errors.Is(err, ErrNotRun) {
		t.Errorf("a node that ended: %v", err)
	}

	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}

	var served sync.WaitGroup
	served.Go(func() { // takes the connection and ends it
		if conn, err := ln.Accept(); err == nil {
			_ = conn.Close()
		}
	})

	for _, name := range []string{"no TLS", "nobody"} {
		other := NewClient(member, ln.Addr().String(), c.id.Hash)
		if _, err := other.RunTool(t.Context(), ping); !errors.Is(err, ErrNotRun) {
			t.Errorf("%s: %v", name, err)
		}
		other.Close()
		served.Wait()
		_ = ln.Close()
	}

	wrong := NewClient(member, c.address, member.Hash)
	defer wrong.Close()
	if _, err := wrong.RunTool(t.Context(), ping); !errors.Is(err, ErrNotRun) {
		t.Errorf("another node's certificate: %v", err)
	}
}
