package restapi

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"saltern/master/event"
	"saltern/master/value"
)

const (
	jidA = "20260101000000000001"
	jidB = "20260101000000000002"
)

// TestEventsOfOwnJobs: for every tag that events have, a limited reader gets the events of its own
// jobs and no others, whoever makes them and whatever their data contain.
func TestEventsOfOwnJobs(t *testing.T) {
	h := newHub(t.TempDir(), slog.New(slog.DiscardHandler), nil)
	defer h.closeAndWait()
	ann := owner{name: "ann", system: "ldap"}
	all := h.addReader(view{all: true}, func() { t.Error("cut") })
	mine := h.addReader(view{own: ann}, func() { t.Error("cut") })
	one := h.addReader(view{own: owner{name: "vera", system: "ldap"}, job: jidB}, func() { t.Error("cut") })
	got := func(r *eventReader) bool {
		frames, _, _ := h.takeBatch(r)
		for _, f := range frames {
			h.countTaken(r, f)
		}
		return len(frames) > 0
	}

	by := func(user, system any) *value.Map {
		m := value.NewMap("user", user)
		if system != nil {
			m.Set(event.EauthField, system)
		}
		return m
	}

	lie := value.NewMap("user", "ann", event.EauthField, "ldap", "jid", jidA)
	for i, c := range []struct {
		tag            string
		data           *value.Map
		own, following bool
	}{
		{"salt/job/" + jidA + "/new", by("ann", "ldap"), true, false},
		{"salt/job/" + jidA + "/publish", nil, true, false},
		{"salt/job/" + jidA + "/ret/web1", nil, true, false},
		{"salt/job/" + jidA + "/prog/web1/0", nil, true, false},
		{"salt/job/" + jidA + "/error", nil, true, false},
		{"salt/state_result/" + jidA + "/web1/x", nil, true, false},
		{jidA, nil, true, false},
		{"salt/job/" + jidA + "/new", by("bob", "ldap"), true, false}, // who was the first stays
		{"salt/job/" + jidB + "/ret/web1", lie, false, true},          // what a minion says tells nothing
		{"salt/job/" + jidB + "/new", by("ann", "file"), false, true}, // another ann
		{"salt/job/" + jidB + "/new", lie, false, true},               // too late
		{"salt/job/" + jidB + "/ret/web1", lie, false, true},
		{"salt/job/20260101000000000003/new", by("ann", ""), false, false}, // by a key, under her name
		{"salt/job/20260101000000000004/new", by("ann", nil), true, false}, // by a master of Salt's
		{"salt/job/20260101000000000005/new", by("", nil), false, false},   // nobody
		{"salt/job/20260101000000000006/new", by([]any{"ann"}, ""), false, false},
		{"salt/run/20260101000000000007/new", by("ann", "ldap"), true, false},
		{"salt/run/20260101000000000007/progress", nil, true, false},
		{"salt/run/20260101000000000008/ret", by("ann", "ldap"), true, false}, // its beginning was missed
		{"salt/run/20260101000000000009/progress", lie, false, false},
		{"salt/wheel/20260101000000000010/ret", by("ann", "ldap"), true, false},
		{"salt/wheel/20260101000000000011/new", by("bob", "ldap"), false, false},
		{"salt/batch/" + jidA + "/start", lie, false, false},
		{"salt/jobs/" + jidA + "/new", lie, false, false},
		{"salt/job//" + jidA + "/new", lie, false, false},
		{"salt/job/" + jidA + "x/ret/web1", lie, false, false},
		{"salt/job/x" + jidA, lie, false, false},
		{"job/" + jidA + "/ret/web1", lie, false, false},
		{"SALT/job/" + jidA + "/ret/web1", lie, false, false},
		{" salt/job/" + jidA + "/ret/web1", lie, false, false},
		{"salt/key", lie, false, false}, {"salt/auth", lie, false, false}, {"salt/netapi/hook/" + jidA, lie, false, false}, {"salt/minion/ann/x", lie, false, false},
		{"salt/presence/present", lie, false, false}, {"master/login/locked", lie, false, false}, {"my/tag", lie, false, false}, {"", lie, false, false},
	} {
		h.sendToReaders(t.Context(), event.Event{Tag: c.tag, Data: c.data})
		if !got(all) {
			t.Errorf("%d %q does not reach who reads all", i, c.tag)
		}

		if got(mine) != c.own {
			t.Errorf("%d %q reaches ann: %v", i, c.tag, !c.own)
		}

		if got(one) != c.following {
			t.Errorf("%d %q reaches who follows %s: %v", i, c.tag, jidB, !c.following)
		}
	}
}

// FuzzPartOf: only the job id in a tag decides to which job the tag belongs.
func FuzzPartOf(f *testing.F) {
	for _, tag := range []string{"salt/job/" + jidA + "/new", "salt/run/" + jidA + "/ret", jidA, "salt//job",
		"salt/job/" + jidA + "/ret/wéb/../x"} {
		f.Add(tag)
	}
	f.Fuzz(func(t *testing.T, tag string) {
		jid, tells := partOf(tag)
		if jid != "" && !strings.Contains(tag, jid) ||
			tells && (jid == "" || !strings.HasSuffix(tag, "/new") && !strings.HasSuffix(tag, "/ret")) {
			t.Errorf("%q: %q %v", tag, jid, tells)
		}
	})
}

// TestUnknownJobs: salt-api asks the master once about an unknown job, not more often than the rate
// limit permits, and not while the master does not answer.
func TestUnknownJobs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		asked, answers := 0, error(nil)
		h := newHub(t.TempDir(), slog.New(slog.DiscardHandler), func(context.Context, string) (jobUser, error) {
			asked++
			return jobUser{name: "ann", system: "ldap"}, answers
		})
		defer h.closeAndWait()

		send := func(n int) {
			h.sendToReaders(t.Context(), event.Event{Tag: fmt.Sprintf("salt/job/202601010000%08d/ret/web1", n)})
		}
		send(0)

		if asked != 0 {
			t.Error("asked, where nobody reads")
		}

		r := h.addReader(view{own: owner{name: "ann", system: "ldap"}}, func() { t.Error("cut") })
		send(1)
		send(1)
		if frames, _, _ := h.takeBatch(r); asked != 1 || len(frames) != 2 {
			t.Errorf("asked %d times, %d events", asked, len(frames))
		}

		for n := range 10 * int(questionRate().Burst) {
			send(100 + n)
		}

		if most := int(questionRate().Burst) + 1; asked > most {
			t.Errorf("asked %d times at once", asked)
		}

		time.Sleep(time.Minute)
		answers = errors.New("away")
		asked = 0
		for n := range 50 {
			send(5000 + n)
		}

		if asked != 1 {
			t.Errorf("a master that does not answer is asked %d times", asked)
		}

		time.Sleep(askAgain)
		answers = nil
		send(5000)
		if asked != 2 {
			t.Errorf("asked %d times when it answers again", asked)
		}
	})
}

// TestOwnersAreBounded: the jobs that were learnt first are forgotten.
func TestOwnersAreBounded(t *testing.T) {
	o := owners{users: map[string]jobUser{}, now: time.Now}
	for n := range 2 * maxOwners {
		o.learnUser(fmt.Sprintf("202601010000%08d", n), jobUser{name: "ann"})
	}
	if len(o.users) != maxOwners || len(o.order) != maxOwners {
		t.Errorf("%d, %d", len(o.users), len(o.order))
	}
	if _, known, _ := o.lookUp("20260101000000000000"); known {
		t.Error("the first is known")
	}
}

// TestNarrowedReader: a reader that loses rights gets no more events of other users, not even
// waiting ones. A reader that gains rights continues.
func TestNarrowedReader(t *testing.T) {
	h := newHub(t.TempDir(), slog.New(slog.DiscardHandler), nil)
	defer h.closeAndWait()
	ann := owner{name: "ann", system: "ldap"}
	r := h.addReader(view{all: true, own: ann}, func() { t.Error("cut") })
	h.sendToReaders(t.Context(), event.Event{Tag: "a"})
	h.setView(r, view{own: ann})
	h.sendToReaders(t.Context(), event.Event{Tag: "b"})

	if frames, ok, _ := h.takeBatch(r); len(frames) != 0 || !ok || r.bytes != 0 || r.frames != 0 {
		t.Errorf("%q, %d bytes count", frames, r.bytes)
	}

	h.sendToReaders(t.Context(),
		event.Event{Tag: "salt/job/" + jidA + "/new", Data: value.NewMap("user", "ann", event.EauthField, "ldap")})
	h.setView(r, view{all: true, own: ann})
	h.sendToReaders(t.Context(), event.Event{Tag: "c"})

	if frames, _, _ := h.takeBatch(r); len(frames) != 2 {
		t.Errorf("%q", frames)
	}
}
