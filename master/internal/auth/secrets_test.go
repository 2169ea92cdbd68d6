package auth_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"saltern/master/crypt"
	"saltern/master/internal/auth"
	"saltern/master/keys"
	"saltern/master/msgpack"
	"saltern/master/value"
	"saltern/test/check"
)

func next(t testing.TB, s *auth.Secrets) (string, int64) {
	t.Helper()
	k, n, err := s.NextPublish()
	check.Must(t, err)
	return k.String(), n
}

// After a restart minions go on with their session keys and with the publish
// key, and serials go on.
func TestRestart(t *testing.T) {
	dir := t.TempDir()
	m := newMaster(t, options{dir: dir})
	check.Must(t, m.keys.Put("m", keys.Accepted, publicText(t, "min6")))
	n := newMinion(t, "m", "min6")
	n.signIn(t, m)
	blob := n.session.Seal([]byte{0xc0}, "")
	key, serial := next(t, m.secrets)
	if serial != 1 {
		t.Errorf("first serial %d", serial)
	}

	for want := int64(2); want < 10; want++ {
		if k, s := next(t, m.secrets); s != want || k != key {
			t.Fatalf("serial %d", s)
		}
	}

	again := newMaster(t, options{dir: dir})
	if _, _, err := again.OpenRequest("m", blob); err != nil {
		t.Errorf("request after restart: %v", err)
	}

	if k, s := next(t, again.secrets); k != key || s <= 9 {
		t.Errorf("serial %d, same key %v", s, k == key)
	}

	for _, name := range []string{".session_seed", ".publish_key"} {
		st, err := os.Stat(filepath.Join(dir, name))
		if err != nil || st.Mode().Perm() != 0o600 {
			t.Errorf("%s: %v, %v", name, st.Mode(), err)
		}
	}

	// A file that others may read is not a secret.
	check.Must(t, os.Chmod(filepath.Join(dir, ".session_seed"), 0o644))
	id, err := auth.NewIdentity(private(t, "masterA"))
	check.Must(t, err)
	if _, err := auth.OpenSecrets(auth.SecretsConfig{Identity: id, CacheDir: dir}); err == nil {
		t.Error("a readable seed was taken")
	}

	check.Must(t, os.Chmod(filepath.Join(dir, ".session_seed"), 0o600))
	check.Must(t, os.WriteFile(filepath.Join(dir, ".session_seed"), []byte("short"), 0o600))
	if _, err := auth.OpenSecrets(auth.SecretsConfig{
		Identity: id,
		CacheDir: dir,
	}); err == nil || !strings.Contains(err.Error(), ".session_seed") {
		t.Errorf("a damaged seed: %v", err)
	}
}

func TestRotation(t *testing.T) {
	dir := t.TempDir()
	m := newMaster(t, options{dir: dir})
	check.Must(t, m.keys.Put("m", keys.Accepted, publicText(t, "min6")))
	n := newMinion(t, "m", "min6")
	n.signIn(t, m)
	key, _ := next(t, m.secrets)
	if n.aes.String() != key {
		t.Error("the minion has another publish key")
	}

	session := n.session.String()
	due := func(want bool) {
		t.Helper()
		got, err := m.secrets.RotateIfDue()
		if err != nil || got != want {
			t.Errorf("rotated %v, %v", got, err)
		}

		n.signIn(t, m)
		if (n.aes.String() != key) != want {
			t.Errorf("new key %v", n.aes.String() != key)
		}

		key = n.aes.String()
		if want {
			if k, serial := next(t, m.secrets); serial != 1 || k != key {
				t.Errorf("serial %d after rotation", serial)
			}
		}
	}

	due(false)
	check.Must(t, auth.RequestRotation(dir, "m1_master"))
	check.Must(t, auth.RequestRotation(dir, "m1_master"))
	st, err := os.Stat(filepath.Join(dir, ".dfn"))
	if err != nil || st.Mode() != 0o400 {
		t.Errorf("drop file %v, %v", st.Mode(), err)
	}

	due(true)
	due(false)
	if n.session.String() != session {
		t.Error("the session key was rotated as well")
	}

	drop := filepath.Join(dir, ".dfn")
	for _, c := range []struct {
		content string
		mode    os.FileMode
		want    bool
	}{
		{"m1", 0o400, true},
		{"", 0o400, true},
		{"other_master", 0o400, false},
		{"m1_master", 0o600, false},
		{"m1_master", 0o666, false},
	} {
		_ = os.Remove(drop)
		check.Must(t, os.WriteFile(drop, []byte(c.content), 0o600))
		check.Must(t, os.Chmod(drop, c.mode))
		due(c.want)
	}

	_ = os.Remove(drop)
	check.Must(t, os.Symlink("/etc/hostname", drop))
	due(false)
	_ = os.Remove(drop)
	m.clock.add(24*time.Hour - time.Second)
	due(false)
	m.clock.add(time.Second)
	due(true)

	// A wish that came while the master was down is heard at the start.
	check.Must(t, auth.RequestRotation(dir, "m1_master"))
	m2 := newMaster(t, options{dir: dir})
	if m2.secrets.PublishKey().String() == key {
		t.Error("the key was kept in spite of the drop file")
	}

	if _, err := os.Stat(drop); err == nil {
		t.Error("the drop file is still there")
	}

	if err := m.secrets.SetClusterKey(m2.secrets.PublishKey()); err == nil {
		t.Error("a single master took a cluster key")
	}
}

func TestUnusablePublishKeyFile(t *testing.T) {
	dir := t.TempDir()
	for _, text := range []string{"", "x", "a b c", strings.Repeat("A", 76) + " -1 0", "k 1"} {
		check.Must(t, os.WriteFile(filepath.Join(dir, ".publish_key"), []byte(text), 0o600))
		m := newMaster(t, options{dir: dir})
		if k, n := next(t, m.secrets); len(k) != crypt.KeyLen || n != 1 {
			t.Errorf("%q: %d", text, n)
		}
	}
}

// Serials never repeat, whoever asks.
func TestSerialsUnderLoad(t *testing.T) {
	m := newMaster(t, options{})
	var wg sync.WaitGroup
	var mu sync.Mutex
	seen := map[string]bool{}
	for range 8 {
		wg.Go(func() {
			for range 200 {
				k, n, err := m.secrets.NextPublish()
				if err != nil {
					t.Error(err)
					return
				}

				mu.Lock()
				id := fmt.Sprint(k.String(), n)
				if seen[id] {
					t.Errorf("serial %d twice", n)
				}

				seen[id] = true
				mu.Unlock()
			}
		})
	}

	for range 3 {
		check.Must(t, m.secrets.Rotate())
	}

	wg.Wait()
}

// Masters of a cluster share seed, identity and publish key: a minion that
// signed in at one is served by the other, also when their clocks differ.
func TestCluster(t *testing.T) {
	shared := filepath.Join(t.TempDir(), "seed")
	key, err := crypt.NewKey(nil)
	check.Must(t, err)
	var masters [2]*master
	for i := range masters {
		masters[i] = newMaster(t, options{secrets: auth.SecretsConfig{SeedFile: shared, ClusterKey: key}})
		check.Must(t, masters[i].keys.Put("m", keys.Accepted, publicText(t, "min6")))
	}

	a, b := masters[0], masters[1]
	n := newMinion(t, "m", "min6")
	for _, ahead := range []time.Duration{0, 2 * time.Minute} {
		a.clock.add(ahead)
		for range 25 {
			n.signIn(t, a)
			if n.aes.String() != key.String() {
				t.Fatal("another publish key")
			}

			if _, _, err := b.OpenRequest("m", n.session.Seal([]byte{0xc0}, "")); err != nil {
				t.Fatalf("b at %v, a ahead by %v: %v", b.clock.now(), ahead, err)
			}

			a.clock.add(time.Hour)
			b.clock.add(time.Hour)
		}
	}

	if _, serial := next(t, a.secrets); serial != 0 || !a.secrets.Clustered() {
		t.Errorf("serial %d in a cluster", serial)
	}

	if a.secrets.Rotate() == nil {
		t.Error("a member rotated the cluster's key")
	}

	if did, err := a.secrets.RotateIfDue(); did || err != nil {
		t.Error(did, err)
	}

	other, err := crypt.NewKey(nil)
	check.Must(t, err)
	check.Must(t, a.secrets.SetClusterKey(other))
	n.signIn(t, a)

	if n.aes.String() != other.String() {
		t.Error("the new cluster key was not taken")
	}

	if _, err := os.Stat(filepath.Join(a.dir, ".publish_key")); err == nil {
		t.Error("a member keeps the cluster's key on its own")
	}
}

// Of several masters that make the seed at once all get the same.
func TestSeedRace(t *testing.T) {
	path := filepath.Join(t.TempDir(), "seed")
	id, err := auth.NewIdentity(private(t, "masterA"))
	check.Must(t, err)
	dirs := make([]string, 8)
	for i := range dirs {
		dirs[i] = t.TempDir()
	}

	store, err := keys.Open(t.TempDir(), keys.Config{Create: true})
	check.Must(t, err)
	check.Must(t, store.Put("m", keys.Accepted, publicText(t, "min6")))
	sessions := make([]string, len(dirs))
	var wg sync.WaitGroup
	for i, dir := range dirs {
		wg.Go(func() {
			sec, err := auth.OpenSecrets(auth.SecretsConfig{Identity: id, CacheDir: dir, SeedFile: path})
			if err != nil {
				t.Error(err)
				return
			}

			svc, err := auth.New(auth.Config{Keys: store, Secrets: sec, PublishPort: 4505})
			if err != nil {
				t.Error(err)
				return
			}

			n := newMinion(t, "m", "min6")
			n.check(t, svc.SignIn(context.Background(), n.load(t), 3, peer))
			sessions[i] = n.session.String()
		})
	}

	wg.Wait()
	for _, s := range sessions {
		if s == "" || s != sessions[0] {
			t.Error("the masters do not agree")
		}
	}
}

func TestPubkeySignature(t *testing.T) {
	signer, err := auth.NewIdentity(private(t, "master_sign"))
	check.Must(t, err)
	m := newMaster(t,
		options{
			secrets:  auth.SecretsConfig{Signer: &signer, PubkeySignature: "  c2lnbmF0dXJl\n"},
			autosign: keys.AutosignConfig{AutoAccept: true},
		})

	n := newMinion(t, "m", "min6")
	if got := n.signIn(t, m); got.Str("pub_sig") != "c2lnbmF0dXJl" {
		t.Errorf("%q", got.Str("pub_sig"))
	}

	if got := newMinion(t, "m", "min6").signIn(t,
		newMaster(t, options{autosign: keys.AutosignConfig{AutoAccept: true}})); got.Str("pub_sig") != "" {
		t.Error("a signature that makes other minions refuse the master")
	}
}

func TestOpenMaster(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "pki")
	a, err := auth.OpenMaster(dir, "m1_master", "pass", 2048)
	check.Must(t, err)
	b, err := auth.OpenMaster(dir, "m1_master", "pass", 2048)
	check.Must(t, err)

	if !a.Key.Equal(b.Key) || a.Public != b.Public || strings.HasSuffix(a.Public, "\n") {
		t.Error("another key after a restart")
	}

	for name, want := range map[string]os.FileMode{
		"m1.pem":     0o400,
		"m1.pub":     0o644,
		"master.pem": os.ModeSymlink,
		"master.pub": os.ModeSymlink,
	} {
		st, err := os.Lstat(filepath.Join(dir, name))
		if err != nil || st.Mode().Type() != want.Type() || want.IsRegular() && st.Mode() != want {
			t.Errorf("%s: %v, %v", name, st, err)
		}
	}

	if _, err := auth.OpenMaster(dir, "m1", "wrong", 2048); !errors.Is(err, crypt.ErrPassphrase) ||
		!strings.Contains(err.Error(), "m1.pem") {
		t.Errorf("wrong passphrase: %v", err)
	}

	// The files of an older release.
	old := t.TempDir()
	check.Must(t, crypt.SavePrivate(filepath.Join(old, "master.pem"), a.Key, ""))
	text := strings.ReplaceAll(a.Public, "\n", "\r\n") + "\r\n"
	check.Must(t, os.WriteFile(filepath.Join(old, "master.pub"), []byte(text), 0o644))
	c, err := auth.OpenMaster(old, "m1", "", 2048)
	if err != nil || !c.Key.Equal(a.Key) || c.Public != a.Public {
		t.Errorf("%v", err)
	}

	if _, err := os.Stat(filepath.Join(old, "m1.pem")); err == nil {
		t.Error("a second key was made")
	}

	for _, id := range []string{"", "_master", "../x", "a/b", ".x"} {
		if _, err := auth.OpenMaster(t.TempDir(), id, "", 2048); err == nil {
			t.Errorf("master id %q", id)
		}
	}

	// The public file of another key is not believed.
	check.Must(t, os.WriteFile(filepath.Join(old, "master.pub"), []byte(publicText(t, "min6")), 0o644))
	if d, err := auth.LoadIdentity(old, "master", ""); err != nil || d.Public != a.Public {
		t.Error("a foreign public key is sent", err)
	}

	s, err := auth.OpenSigner(dir, "master_sign", "", 2048)
	check.Must(t, err)
	if s2, err := auth.OpenSigner(dir, "master_sign", "", 2048); err != nil || !s2.Key.Equal(s.Key) {
		t.Error("another signing key", err)
	}
}

// The public operation is done once per token, not once per request.
func TestTokenMemory(t *testing.T) {
	m := newMaster(t, options{})
	check.Must(t, m.keys.Put("m", keys.Accepted, publicText(t, "min6")))
	n := newMinion(t, "m", "min6")
	tok := n.tok(t)
	for range 100 {
		if !m.VerifyToken("m", tok) {
			t.Fatal("refused")
		}
	}

	if got := m.Stats().Tokens; got != 1 {
		t.Errorf("%d public operations", got)
	}

	foreign := newMinion(t, "m", "min7").tok(t)
	for name, bad := range map[string][]byte{
		"none":    nil,
		"foreign": foreign,
		"short":   tok[1:],
		"zero":    make([]byte, 256),
		"long":    append(tok[:len(tok):len(tok)], 0),
	} {
		if m.VerifyToken("m", bad) {
			t.Errorf("%s was taken", name)
		}
	}

	if m.VerifyToken("other", tok) {
		t.Error("taken for another id")
	}

	other, err := crypt.X931Sign(n.key, []byte("pepper"))
	check.Must(t, err)
	if m.VerifyToken("m", other) {
		t.Error("another text was taken")
	}

	// One for the good token, five and one for the others, none for "other".
	if !m.VerifyToken("m", tok) || m.Stats().Tokens != 7 {
		t.Errorf("the good token was forgotten: %+v", m.Stats())
	}
}

func TestPrivateReply(t *testing.T) {
	m := newMaster(t, options{})
	check.Must(t, m.keys.Put("m", keys.Accepted, publicText(t, "min6")))
	n := newMinion(t, "m", "min6")
	algorithms := auth.Algorithms{Encryption: crypt.OAEPSHA224, Signing: crypt.PKCS1SHA224}
	private, err := m.Private("m", algorithms, "n1", value.NewMap("role", "web"))
	check.Must(t, err)
	wrapped, _ := private.Bytes("key")
	text, err := crypt.Decrypt(n.key, crypt.OAEPSHA224, wrapped)
	check.Must(t, err)
	key, err := crypt.ParseKey(string(text))
	check.Must(t, err)
	sealed, _ := private.Bytes("pillar")
	packed, err := key.Open(sealed)
	check.Must(t, err)
	signed := unpacked(t, packed)
	data, _ := signed.Bytes("data")
	sig, _ := signed.Bytes("sig")
	check.Must(t, crypt.Verify(n.masterKey, crypt.PKCS1SHA224, data, sig))
	inner := unpacked(t, data)
	if again, _ := inner.Bytes("key"); !bytes.Equal(again, wrapped) || inner.Str("nonce") != "n1" ||
		inner.Map("pillar").Str("role") != "web" {
		t.Errorf("inside: %v", inner)
	}

	for _, bad := range []auth.Algorithms{{Encryption: crypt.OAEPSHA1, Signing: "x"}, {Encryption: "x"}} {
		if _, err := m.Private("m", bad, "", value.NewMap()); !errors.Is(err, crypt.ErrAlgorithm) {
			t.Error(err)
		}
	}

	if _, err := m.Private("none", algorithms, "", value.NewMap()); !errors.Is(err, auth.ErrNotAccepted) {
		t.Error(err)
	}
}

func unpacked(t *testing.T, b []byte) *value.Map {
	t.Helper()
	v, err := msgpack.Decode(b, msgpack.DefaultLimits)
	check.Must(t, err)
	m, ok := v.(*value.Map)
	if !ok {
		t.Fatalf("%T", v)
	}
	return m
}

// A disk that hangs stops new minions, not those that are accepted; nobody gets
// keys before its own is stored.
func TestHangingDisk(t *testing.T) {
	for _, st := range []keys.State{keys.Pending, keys.Accepted} {
		t.Run(st.String(), func(t *testing.T) { hangingDisk(t, st) })
	}
}

func hangingDisk(t *testing.T, st keys.State) {
	m := newMaster(t, options{
		// Far above what the five good sign-ins need of a busy CPU, among them all.
		auth:     auth.Config{Workers: 1, MaxWait: 3 * time.Second},
		autosign: keys.AutosignConfig{AutoAccept: st == keys.Accepted},
		store:    keys.Config{PendingPerKey: 100}, // all have the same key
	})

	check.Must(t, m.keys.Put("good", keys.Accepted, publicText(t, "min6")))
	before := m.keys.Count(st)
	hang := make(chan struct{})
	m.keys.OnChange(func(keys.Change) { <-hang })
	stranger := newMinion(t, "x", "min8")
	var wg sync.WaitGroup
	for i := range 40 {
		load := stranger.load(t)
		load.Set("id", fmt.Sprint("new", i))
		wg.Go(func() {
			got, ev := m.SignInEvent(context.Background(), load, 3, peer)
			if text, ok := got.(string); !ok || !strings.Contains(text, "busy") || ev.Act != "" {
				t.Errorf("%v %v", got, ev)
			}
		})
	}

	n := newMinion(t, "good", "min6")
	for range 5 {
		if got := n.signIn(t, m); got.Str("enc") != "pub" {
			t.Error(got)
		}
	}

	wg.Wait()
	if got := m.Stats().Accepted; got != 5 {
		t.Errorf("%d accepted", got)
	}

	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Millisecond)
	defer cancel()
	if err := m.Close(ctx); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("closed while the disk hangs: %v", err)
	}

	close(hang)
	check.Must(t, m.Close(context.Background()))
	if m.keys.Count(st) == before {
		t.Error("what was under way is lost")
	}
}

// Of two keys that come for one id at the same time one is accepted, and its
// owner alone gets keys.
func TestTwoKeysAtOnce(t *testing.T) {
	m := newMaster(t, options{autosign: keys.AutosignConfig{AutoAccept: true}, auth: auth.Config{Workers: 4}})
	for i := range 20 {
		var wg sync.WaitGroup
		var in atomic.Int32
		for _, key := range []string{"min6", "min8"} {
			n := newMinion(t, fmt.Sprint("m", i), key)
			load := n.load(t)
			wg.Go(func() {
				if _, ev := m.SignInEvent(context.Background(), load, 3, peer); ev.Act == auth.ActAccept {
					in.Add(1)
					if e, _ := m.keys.Lookup(n.id); e.PEM != crypt.NormalizePEM(load.Str("pub")) {
						t.Error("the other key is stored")
					}
				} else if ev.Act != auth.ActDenied {
					t.Errorf("%+v", ev)
				}
			})
		}

		wg.Wait()
		if in.Load() != 1 {
			t.Errorf("%d accepted", in.Load())
		}
	}
}

func TestNewRefuses(t *testing.T) {
	if _, err := auth.New(auth.Config{}); err == nil {
		t.Error("without keys")
	}

	m := newMaster(t, options{})
	if _, err := auth.New(auth.Config{Keys: m.keys, Secrets: m.secrets, MaxMinions: 1}); err == nil {
		t.Error("max_minions without a count")
	}

	id, err := auth.NewIdentity(private(t, "masterA"))
	check.Must(t, err)
	if _, err := auth.OpenSecrets(auth.SecretsConfig{
		Identity:         id,
		CacheDir:         t.TempDir(),
		SigningAlgorithm: "x",
	}); !errors.Is(err, crypt.ErrAlgorithm) {
		t.Error(err)
	}
}
