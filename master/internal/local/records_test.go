package local

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"saltern/internal/audit"
	"saltern/master/runner"
	"saltern/master/value"
)

func TestRecords(t *testing.T) {
	now := time.Date(2026, 11, 25, 12, 0, 0, 0, time.UTC)
	cfg := audit.Config{Dir: t.TempDir(), Node: "n1", Program: "test"}
	l := audit.Open(cfg)
	for i := range 60 {
		r := audit.Record{
			Time:   now.Add(-time.Duration(60-i) * time.Hour),
			Actor:  audit.Actor{User: "alice", Proof: audit.Token, From: "192.0.2.1"},
			Action: "job.publish",
			Object: fmt.Sprint(i),
			Result: audit.Started,
		}

		if i%2 == 1 {
			r.Actor, r.Action = audit.Actor{User: "bob", As: "root"}, "key.accept"
		}

		l.Write(t.Context(), r)
	}

	l.Close()
	run := Records(cfg, func() time.Time { return now })
	for _, c := range []struct {
		named       *value.Map
		n           int
		first, last string
		more        bool
	}{
		{nil, 50, "10", "59", true},
		{value.NewMap("last", int64(500)), 60, "0", "59", false},
		{value.NewMap("last", "3", "user", "alice"), 3, "54", "58", true},
		{value.NewMap("user", "root", "__user__", "x"), 30, "1", "59", false},
		{value.NewMap("since", "2d", "action", "key.*", "last", int64(100)), 24, "13", "59", false},
		{value.NewMap("since", "90m"), 1, "59", "59", false},
		{value.NewMap("since", "2026-11-25T10:00:00Z"), 2, "58", "59", false},
		{value.NewMap("action", "login"), 0, "", "", false},
	} {
		got, err := run(t.Context(), nil, nil, c.named)
		if err != nil {
			t.Fatal(err)
		}

		m := got.(*value.Map)
		list := m.List("records")
		if len(list) != c.n || m.Value("more") != c.more || m.Str("node") != "n1" {
			t.Fatalf("%s: %d records, more %v", value.Repr(c.named), len(list), m.Value("more"))
		}

		if c.n > 0 && (list[0].(*value.Map).Str("object") != c.first ||
			list[c.n-1].(*value.Map).Str("object") != c.last) {
			t.Errorf("%s: %s", value.Repr(c.named), value.Repr(list))
		}
	}

	for _, bad := range []*value.Map{value.NewMap("last", int64(0)), value.NewMap("last", int64(501)),
		value.NewMap("last", "x"), value.NewMap("since", "yesterday"), value.NewMap("since", "-1h"),
		value.NewMap("user", 1.1), value.NewMap("action", true), value.NewMap("action", "[a"), value.NewMap("what", "x")} {
		_, err := run(t.Context(), nil, nil, bad)
		if _, ok := errors.AsType[*runner.ArgumentError](err); !ok {
			t.Errorf("%s: %v", value.Repr(bad), err)
		}
	}

	if _, err := run(t.Context(), nil, []any{"24h"}, nil); err == nil {
		t.Error("an argument without a name is taken")
	}
}
