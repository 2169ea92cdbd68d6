package client_test

import (
	"context"
	"errors"
	"net"
	"testing"
	"time"

	"saltern/internal/control"
	"saltern/master/client"
	"saltern/master/value"
	"saltern/test/fakemaster"
)

// Only the echo of a ping counts as an answer: a master that still joins its cluster sends
// something else.
func TestAnswers(t *testing.T) {
	m := fakemaster.New(t)
	silent, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer silent.Close()

	port := silent.Addr().(*net.TCPAddr).Port
	for name, tt := range map[string]struct {
		answer any // nil: the ping
		change func(*client.Config)
		ok     bool
	}{
		"echo":       {nil, nil, true},
		"joining":    {value.NewMap("cluster_retry", true), nil, false},
		"unwell":     {value.NewMap("ret", false, "cluster_retry", true, control.PingFault, "its disk"), nil, false},
		"overloaded": {"bad load", nil, false},
		"silent":     {nil, func(c *client.Config) { c.RetPort = port }, false},
		"refused":    {nil, func(c *client.Config) { c.RetPort = 1 }, false},
		"not there":  {nil, func(c *client.Config) { c.SockDir = t.TempDir() }, false},
	} {
		m.Clear = func(load *value.Map) any {
			if tt.answer != nil {
				return tt.answer
			}
			return load
		}

		ctx, cancel := context.WithTimeout(t.Context(), 500*time.Millisecond)
		err := connect(t, m, tt.change).Answers(ctx)
		cancel()
		if (err == nil) != tt.ok {
			t.Errorf("%s: %v", name, err)
		}

		if errors.Is(err, client.ErrUnwell) != (name == "unwell") {
			t.Errorf("%s: is it unwell? %v", name, err)
		}
	}
}
