package auth_test

import (
	"context"
	"os"
	"path/filepath"
	"testing"

	"saltern/master/crypt"
	"saltern/master/internal/auth"
	"saltern/master/keys"
	"saltern/master/value"
	"saltern/test/check"
)

// The rules of a sign-in, in the order in which they count. before is the
// state of the minion's own key, or of another one with other set.
func TestDecisions(t *testing.T) {
	reject := func(t *testing.T, o *options, id string) {
		o.autosign.AutorejectFile = filepath.Join(o.dir, "autoreject")
		check.Must(t, os.WriteFile(o.autosign.AutorejectFile, []byte(id+"\n"), 0o600))
	}

	sign := func(t *testing.T, o *options, id string) {
		o.autosign.AutosignFile = filepath.Join(o.dir, "autosign")
		check.Must(t, os.WriteFile(o.autosign.AutosignFile, []byte(id+"\n"), 0o600))
	}

	openMode := func(_ *testing.T, o *options, _ string) { o.auth.OpenMode = true }
	full := func(n int, has bool) func(*testing.T, *options, string) {
		return func(_ *testing.T, o *options, _ string) {
			o.auth.MaxMinions, o.auth.Presence = 5, connected{n, has}
		}
	}

	both := func(fs ...func(*testing.T, *options, string)) func(*testing.T, *options, string) {
		return func(t *testing.T, o *options, id string) {
			for _, f := range fs {
				f(t, o, id)
			}
		}
	}

	type fn = func(*testing.T, *options, string)
	cases := []struct {
		row    int
		name   string
		id     string // "" means "m"
		before keys.State
		other  bool // the key on file is another one
		setup  fn
		ret    any // true, false, "full" or "accept"
		act    string
		after  keys.State
		denied bool
	}{
		{1, "separator", "../m", keys.None, false, nil, false, "", keys.None, false},
		{1, "dots", "..", keys.None, false, openMode, false, "", keys.None, false},
		{2, "full", "", keys.None, false, full(6, false), "full", auth.ActFull, keys.None, false},
		{2, "full, accepted", "", keys.Accepted, false, full(6, false), "full", auth.ActFull, keys.Accepted, false},
		{2, "full but connected", "", keys.Accepted, false, full(6, true), "accept", auth.ActAccept,
			keys.Accepted, false},
		{2, "just not full", "", keys.Accepted, false, full(5, false), "accept", auth.ActAccept, keys.Accepted, false},
		{2, "full before open mode", "", keys.Accepted, true, both(openMode, full(6, false)), "full",
			auth.ActFull, keys.Accepted, false},
		{3, "open, new", "", keys.None, false, openMode, "accept", auth.ActAccept, keys.Accepted, false},
		{3, "open, rejected", "", keys.Rejected, false, openMode, "accept", auth.ActAccept, keys.Accepted, false},
		{3, "open, other key", "", keys.Accepted, true, openMode, "accept", auth.ActAccept, keys.Accepted, false},
		{3, "open, autoreject", "", keys.None, false, both(openMode, reject), "accept", auth.ActAccept,
			keys.Accepted, false},
		{4, "rejected", "", keys.Rejected, false, nil, false, auth.ActReject, keys.Rejected, false},
		{4, "rejected, autosign", "", keys.Rejected, false, sign, false, auth.ActReject, keys.Rejected, false},
		{5, "accepted", "", keys.Accepted, false, nil, "accept", auth.ActAccept, keys.Accepted, false},
		{5, "accepted, autoreject", "", keys.Accepted, false, reject, "accept", auth.ActAccept, keys.Accepted, false},
		{6, "mismatch", "", keys.Accepted, true, nil, false, auth.ActDenied, keys.Accepted, true},
		{6, "mismatch, autosign", "", keys.Accepted, true, sign, false, auth.ActDenied, keys.Accepted, true},
		{7, "new, autoreject", "", keys.None, false, reject, false, auth.ActReject, keys.Rejected, false},
		{7, "new, both", "", keys.None, false, both(reject, sign), false, auth.ActReject, keys.Rejected, false},
		{8, "new, autosign", "", keys.None, false, sign, "accept", auth.ActAccept, keys.Accepted, false},
		{9, "new", "", keys.None, false, nil, true, auth.ActPend, keys.Pending, false},
		{10, "pending, autoreject", "", keys.Pending, false, reject, false, auth.ActReject, keys.Rejected, false},
		{10, "pending, autoreject, other key", "", keys.Pending, true, reject, false, auth.ActReject,
			keys.Rejected, false},
		{11, "pending, other key", "", keys.Pending, true, nil, false, auth.ActDenied, keys.Pending, true},
		{11, "pending, other key, autosign", "", keys.Pending, true, sign, false, auth.ActDenied, keys.Pending, true},
		{12, "pending, autosign", "", keys.Pending, false, sign, "accept", auth.ActAccept, keys.Accepted, false},
		{13, "pending", "", keys.Pending, false, nil, true, auth.ActPend, keys.Pending, false},
	}

	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			if c.id == "" {
				c.id = "m"
			}

			o := options{dir: t.TempDir()}
			if c.setup != nil {
				c.setup(t, &o, c.id)
			}

			m := newMaster(t, o)
			onFile := publicText(t, "min6")
			if c.other {
				onFile = publicText(t, "min8")
			}

			if c.before != keys.None {
				check.Must(t, m.keys.Put(c.id, c.before, onFile))
			}

			n := newMinion(t, c.id, "min6")
			payload, ev := m.SignInEvent(context.Background(), n.load(t), 3, peer)
			got := n.check(t, payload)
			if c.ret == "accept" {
				if got.Str("enc") != "pub" {
					t.Errorf("row %d: answer %v", c.row, got.Keys())
				}
			} else if ret, _ := got.Get("ret"); ret != c.ret || got.Len() != 2 {
				t.Errorf("row %d: ret %v, want %v", c.row, ret, c.ret)
			}

			if ev.Act != c.act || ev.Result != (c.ret == "accept" || c.ret == true) {
				t.Errorf("row %d: event %+v", c.row, ev)
			}

			if c.act == "" && len(m.events) > 0 || c.act != "" && m.lastEvent(t).Str("act") != c.act {
				t.Errorf("row %d: events %v", c.row, m.events)
			}

			e, _ := m.keys.Lookup(c.id)
			if e.State != c.after {
				t.Errorf("row %d: key is %s, want %s", c.row, e.State, c.after)
			}

			wantPEM := onFile
			if c.before == keys.None || c.other && m.Warnings() != nil && c.ret == "accept" {
				wantPEM = publicText(t, "min6")
			}

			if e.State != keys.None && e.PEM != wantPEM {
				t.Errorf("row %d: another key is on file", c.row)
			}

			d, has := m.keys.Denied(c.id)
			if has != c.denied || has && d.PEM != publicText(t, "min6") {
				t.Errorf("row %d: denied %v", c.row, has)
			}
		})
	}
}

func TestOpenModeNeedsKey(t *testing.T) {
	m := newMaster(t, options{auth: auth.Config{OpenMode: true}})
	n := newMinion(t, "m", "min6")
	for _, pub := range []string{"", "  \n", "garbage"} {
		load := n.load(t)
		load.Set("pub", pub)
		if got := n.check(t, m.SignIn(context.Background(), load, 3, peer)); got.Bool("ret") || got.Str("enc") != "" {
			t.Errorf("%q: %v", pub, got)
		}
	}
	if m.keys.Count(keys.Accepted) != 0 {
		t.Error("an unusable key was stored")
	}
}

func TestAlgorithms(t *testing.T) {
	m := newMaster(t, options{})
	n := newMinion(t, "m", "minsha")
	check.Must(t, m.keys.Put("m", keys.Accepted, publicText(t, "minsha")))
	n.enc = crypt.OAEPSHA224
	n.sig = crypt.PKCS1SHA224
	n.withToken = true

	if got := n.signIn(t, m); got.Str("enc") != "pub" {
		t.Error(got)
	}

	for _, c := range []struct{ field, value, want string }{
		{"sig_algo", "PKCS1v15-SHA256", "bad sig algo"}, {"sig_algo", "", "bad sig algo"}, {"sig_algo", crypt.OAEPSHA1, "bad sig algo"},
		{"enc_algo", "OAEP-SHA256", "bad enc algo"}, {"enc_algo", crypt.PKCS1SHA1, "bad enc algo"},
	} {
		load := newMinion(t, "m", "minsha").load(t)
		load.Set(c.field, c.value)
		p, ok := m.SignIn(context.Background(), load, 3, peer).(*value.Map)
		if !ok || p.Str("enc") != "clear" || p.Map("load").Str("ret") != c.want || p.Len() != 2 {
			t.Errorf("%s %q: %v", c.field, c.value, p)
		}
	}

	// Nothing is stored for a stranger that cannot be answered.
	load := newMinion(t, "stranger", "min6").load(t)
	load.Set("sig_algo", "none")
	m.SignIn(context.Background(), load, 3, peer)
	if _, ok := m.keys.Lookup("stranger"); ok {
		t.Error("stored")
	}

	// The defaults of old minions.
	load = newMinion(t, "m", "minsha").load(t)
	load.Delete("enc_algo")
	load.Delete("sig_algo")
	d := newMinion(t, "m", "minsha")
	if got := d.check(t, m.SignIn(context.Background(), load, 3, peer)); got.Str("enc") != "pub" {
		t.Error(got)
	}
}

// Requests of the oldest protocols get the map itself, unsigned. The request
// server refuses them before they come here unless minimum_auth_version says
// otherwise.
func TestOldVersions(t *testing.T) {
	m := newMaster(t, options{})
	n := newMinion(t, "m", "min6")
	load := n.load(t)
	load.Delete("nonce")
	p := m.SignIn(context.Background(), load, 0, peer).(*value.Map)
	if p.Len() != 2 || !p.Map("load").Bool("ret") {
		t.Error(p)
	}

	check.Must(t, m.keys.Move("m", keys.Accepted))
	p = m.SignIn(context.Background(), load, 1, peer).(*value.Map)
	if _, signed := p.Get("load"); signed || p.Str("enc") != "pub" {
		t.Error(p)
	}

	if _, has := p.Get("nonce"); has {
		t.Error("a nonce that was not sent")
	}

	if got := n.check(t, m.SignIn(context.Background(), n.load(t), 2, peer)); got.Str("enc") != "pub" {
		t.Error(got)
	}
}

func TestClusterEvents(t *testing.T) {
	m := newMaster(t,
		options{
			auth:     auth.Config{ClusterEvents: true, NoEvents: true},
			autosign: keys.AutosignConfig{AutoAccept: true},
		})
	n := newMinion(t, "m", "min6")
	n.signIn(t, m)
	n.signIn(t, m)
	if len(m.tags) != 1 || m.tags[0] != auth.TagKey || m.events[0].Str("act") != "accept" ||
		m.events[0].Str("pub") != publicText(t, "min6") {
		t.Errorf("%v %v", m.tags, m.events)
	}
}

func TestAutosignGrains(t *testing.T) {
	dir := t.TempDir()
	grains := filepath.Join(dir, "grains")
	check.Must(t, os.Mkdir(grains, 0o700))
	check.Must(t, os.WriteFile(filepath.Join(grains, "role"), []byte("web\n"), 0o600))
	check.Must(t, os.WriteFile(filepath.Join(grains, "num"), []byte("42\n"), 0o600))
	check.Must(t, os.WriteFile(filepath.Join(grains, "flag"), []byte("True\n"), 0o600))
	check.Must(t, os.WriteFile(filepath.Join(grains, "none"), []byte("None\n"), 0o600))
	m := newMaster(t,
		options{
			dir:      dir,
			autosign: keys.AutosignConfig{GrainsDir: grains},
			auth:     auth.Config{EventGrains: []string{"accept"}},
		})

	for id, c := range map[string]struct {
		grains *value.Map
		want   bool
	}{
		"a": {value.NewMap("role", "web"), true},
		"b": {value.NewMap("role", "db", "num", int64(42)), true},
		"c": {value.NewMap("flag", true), true},
		"d": {value.NewMap("none", nil), true},
		"e": {value.NewMap("role", []any{"web"}, "x", value.NewMap()), false},
		"f": {value.NewMap("role", "db"), false},
		"g": {nil, false},
	} {
		n := newMinion(t, id, "min6")
		n.grains = c.grains
		if got := n.signIn(t, m).Str("enc") == "pub"; got != c.want {
			t.Errorf("%s: %v", id, got)
		}

		if got := m.lastEvent(t).Map("autosign_grains") != nil; got != c.want {
			t.Errorf("%s: grains in the event: %v", id, got)
		}
	}
}
