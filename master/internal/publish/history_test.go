package publish

import (
	"context"
	"errors"
	"net"
	"slices"
	"strings"
	"testing"
	"time"

	"saltern/master/value"
)

func TestHistory(t *testing.T) {
	now := time.Unix(1000, 0)
	out := &sink{}
	p := newPublisher(t,
		Config{
			Pub:       out,
			Keys:      counter(newKey(t)),
			KeepCount: 3,
			KeepAge:   time.Minute,
			Now:       func() time.Time { return now },
		})

	publish := func(jid string, size int) {
		t.Helper()
		if err := p.Publish(context.Background(), value.NewMap("jid", jid, "x", strings.Repeat("x", size)),
			[]string{"m"}); err != nil {
			t.Fatal(err)
		}
		now = now.Add(time.Second)
	}

	want := func(since time.Time, jids ...string) {
		t.Helper()
		var got []string
		for _, r := range p.Recent(since) {
			got = append(got, r.JID)
		}

		if !slices.Equal(got, jids) {
			t.Errorf("recent %q, want %q", got, jids)
		}
	}

	want(time.Time{})
	for _, jid := range []string{"1", "2", "3", "4"} {
		publish(jid, 1)
	}

	want(time.Time{}, "2", "3", "4")
	want(time.Unix(1002, 0), "3", "4")
	want(time.Unix(1004, 0))
	now = time.Unix(1062, 1)
	want(time.Time{}, "4")
	publish("big", 9<<20)
	want(time.Time{})
	publish("small", 1)
	want(time.Time{}, "small")
	out.err = net.ErrClosed

	if err := p.Publish(context.Background(), value.NewMap("jid", "lost"), nil); !errors.Is(err, net.ErrClosed) {
		t.Errorf("publish: %v", err)
	}

	want(time.Time{}, "small")
	if p.history.used <= 0 || p.history.used > 500 {
		t.Errorf("%d bytes accounted for", p.history.used)
	}
}

func TestResend(t *testing.T) {
	key := newKey(t)
	for _, filtering := range []bool{false, true} {
		out := &sink{}
		p := newPublisher(t, Config{Pub: out, Keys: counter(key), Filtering: filtering})
		if err := p.Publish(context.Background(), value.NewMap("jid", "1", "tgt", "*", "tgt_type", "glob"),
			[]string{"m"}); err != nil {
			t.Fatal(err)
		}

		r := p.Recent(time.Time{})
		if err := p.Resend(context.Background(), 42, r[0]); err != nil {
			t.Fatal(err)
		}

		frames := out.last(t)
		if filtering != (len(frames) == 2) || (filtering && string(frames[0]) != "broadcast") {
			t.Errorf("frames %q", frames)
		}

		body, err := key.Open(blob(t, decode(t, frames[len(frames)-1]), "load"))
		if err != nil {
			t.Fatal(err)
		}

		if n, _ := decode(t, body).Int("serial"); n != 2 || !slices.Equal(out.to, []uint64{42}) {
			t.Errorf("serial %d to %v", n, out.to)
		}

		out.full = true
		if err := p.Resend(context.Background(), 42, r[0]); !errors.Is(err, errGone) {
			t.Errorf("resend: %v", err)
		}

		if s := p.Stats(); s.Published != 1 || s.Resent != 1 || s.Failed != 1 || s.Kept != 1 {
			t.Errorf("stats %+v", s)
		}
	}
}
