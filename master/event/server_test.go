package event

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"saltern/master/msgpack"
	"saltern/master/value"
	"saltern/test/await"
)

// sockDir is a short directory, since socket paths are.
func sockDir(t testing.TB) string {
	d, err := os.MkdirTemp("", "ev")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(d) })
	return d
}

func serve(t testing.TB, cfg Config) (*Bus, *Server) {
	t.Helper()
	if cfg.Dir == "" {
		cfg.Dir = sockDir(t)
	}
	b := newBus()
	s, err := Serve(b, cfg, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.Close)
	return b, s
}

func listenTo(t testing.TB, s *Server) *Listener {
	t.Helper()
	n := s.Stats().Readers
	l, err := DialPub(await.Context(t), s.cfg.Dir)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	until(t, func() bool { return s.Stats().Readers > n })
	return l
}

func until(t testing.TB, done func() bool) {
	t.Helper()
	await.That(t, "the expected state", done)
}

// TestCleanedEvents: a value that Clean removes from another process's event appears nowhere on the
// bus. An event that Clean does not change stays as it arrived.
func TestCleanedEvents(t *testing.T) {
	b, s := serve(t, Config{Clean: func(tag string, d *value.Map) *value.Map {
		if tag != "dirty" {
			return d
		}
		return data("secret", "gone")
	}})

	reader, in := listenTo(t, s), b.Subscribe("in", 10, nil)
	p := NewSender(s.cfg.Dir)
	defer p.Close()

	for tag, want := range map[string]string{"dirty": "gone", "clean": "kept"} {
		if err := p.Fire(await.Context(t), tag, data("secret", "kept")); err != nil {
			t.Fatal(err)
		}

		if e := <-in.C; e.Data.Str("secret") != want {
			t.Errorf("%s inside: %v", tag, e.Data)
		}

		if e, err := reader.Next(await.Context(t)); err != nil || e.Tag != tag || e.Data.Str("secret") != want ||
			e.Data.Str("_stamp") == "" {
			t.Errorf("%s on the socket: %v %v", tag, e.Data, err)
		}
	}
}

func TestRoundTrip(t *testing.T) {
	for _, prefix := range []bool{false, true} {
		t.Run(fmt.Sprintf("prefix=%v", prefix), func(t *testing.T) {
			b, s := serve(t, Config{PubPrefix: prefix})
			one, two := listenTo(t, s), listenTo(t, s)
			in := b.Subscribe("in", 10, nil)
			p := NewSender(s.cfg.Dir)
			defer p.Close()

			if err := p.Fire(await.Context(t), "salt/key", data("id", "m1", "bytes", []byte{0xff})); err != nil {
				t.Fatal(err)
			}

			if e := <-in.C; e.Tag != "salt/key" || e.Origin != Socket || e.Data.Str("_stamp") == "" {
				t.Errorf("inside: %+v", e)
			}

			b.Fire("salt/big", data("x", strings.Repeat("y", 300<<10)))
			b.Fire("salt/last", data())
			for _, l := range []*Listener{one, two} {
				for _, want := range []string{"salt/key", "salt/big", "salt/last"} {
					e, err := l.Next(await.Context(t))
					if err != nil || e.Tag != want {
						t.Fatalf("got %q, %v; want %q", e.Tag, err, want)
					}
				}
			}

			short, cancel := context.WithTimeout(context.Background(), 20*time.Millisecond)
			defer cancel()
			if _, err := one.Next(short); !errors.Is(err, context.DeadlineExceeded) {
				t.Errorf("waiting: %v", err)
			}

			b.Fire("salt/after", data())
			if e, err := one.Next(await.Context(t)); err != nil || e.Tag != "salt/after" {
				t.Errorf("after a wait that ended: %v %v", e, err)
			}

			s.Close()
			if _, err := one.Next(await.Context(t)); !errors.Is(err, io.EOF) {
				t.Errorf("after the end: %v", err)
			}
		})
	}
}

func TestExactBytes(t *testing.T) {
	for _, prefix := range []bool{false, true} {
		b, s := serve(t, Config{PubPrefix: prefix})
		c, err := net.Dial("unix", filepath.Join(s.cfg.Dir, pubName))
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()

		until(t, func() bool { return s.Stats().Readers == 1 })
		want := read(t, "event_salt_auth.bin")
		e, _, _ := parseFrame(want)
		b.Relay(e)

		if prefix {
			want = append(binary.BigEndian.AppendUint32(nil, uint32(len(want))), want...)
		}

		got := make([]byte, len(want))
		if _, err := io.ReadFull(c, got); err != nil || !bytes.Equal(got, want) {
			t.Errorf("prefix %v: %x, %v", prefix, got, err)
		}
	}
}

func TestSlowReaderIsCut(t *testing.T) {
	b, s := serve(t, Config{ReaderBuffer: 1 << 20})
	listenTo(t, s) // never reads
	good := listenTo(t, s)
	payload := data("x", strings.Repeat("y", 64<<10))
	begin := time.Now()

	for i := range 100 { // 6.4 MB, far beyond the bound and the kernel's buffer
		b.Fire("salt/flood", payload)
		if e, err := good.Next(await.Context(t)); err != nil || e.Tag != "salt/flood" {
			t.Fatalf("event %d: %v", i, err)
		}
	}

	if d := time.Since(begin); d > 5*time.Second {
		t.Errorf("the good reader waited: %v", d)
	}

	if st := s.Stats(); st.Cut != 1 || st.Readers != 1 {
		t.Errorf("%+v", st)
	}
}

func TestReaderLimit(t *testing.T) {
	_, s := serve(t, Config{MaxReaders: 1})
	listenTo(t, s)
	l, err := DialPub(await.Context(t), s.cfg.Dir)
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	if _, err := l.Next(await.Context(t)); err == nil || s.Stats().Refused != 1 {
		t.Errorf("second reader: %v, %+v", err, s.Stats())
	}
}

func TestReaderThatLeavesIsForgotten(t *testing.T) {
	b, s := serve(t, Config{})
	listenTo(t, s).Close()
	until(t, func() bool { return s.Stats().Readers == 0 })
	b.Fire("x", data())
	if s.Stats().Cut != 0 {
		t.Error("counted as slow")
	}
}

// A client that is connected but not yet accepted gets the events that are fired after Settle.
func TestSettle(t *testing.T) {
	_, s := serve(t, Config{MaxReaders: 3, peerUID: func(c *net.UnixConn) (uint32, error) {
		time.Sleep(20 * time.Millisecond) // as on a busy machine
		return peerUID(c)
	}})

	for want := 1; want <= 3; want++ {
		l, err := DialPub(await.Context(t), s.cfg.Dir)
		if err != nil {
			t.Fatal(err)
		}
		defer l.Close()

		if err := s.Settle(await.Context(t)); err != nil {
			t.Fatal(err)
		}

		if st := s.Stats(); st.Readers != want || st.Refused != 0 {
			t.Fatalf("%d readers, %d refused; want %d, 0", st.Readers, st.Refused, want)
		}
	}

	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := s.Settle(ctx); err == nil {
		t.Error("no error when it was not waited")
	}

	s.Close()
	if err := s.Settle(await.Context(t)); err == nil {
		t.Error("no error of a server that is closed")
	}
}

func TestSocketFiles(t *testing.T) {
	_, s := serve(t, Config{})
	for name, mode := range map[string]fs.FileMode{
		pubName:       fs.ModeSocket | 0o660,
		pullName:      fs.ModeSocket | 0o600,
		publishMarker: 0o600,
		workersMarker: 0o600,
	} {
		st, err := os.Stat(filepath.Join(s.cfg.Dir, name))
		if err != nil || st.Mode() != mode {
			t.Errorf("%s: %v, %v", name, st, err)
		}
	}

	if _, err := Serve(newBus(), Config{Dir: s.cfg.Dir}, slog.New(slog.DiscardHandler)); !errors.Is(err, errInUse) {
		t.Errorf("second master: %v", err)
	}

	if _, err := DialPub(await.Context(t), s.cfg.Dir); err != nil {
		t.Errorf("the first one was harmed: %v", err)
	}

	s.Close()
	left, _ := filepath.Glob(filepath.Join(s.cfg.Dir, "*event*"))
	if len(left) != 0 {
		t.Errorf("left over: %v", left)
	}
}

// TestRemovedSocketFilesComeBack: what a cleaner of temporary folders removes is there again, also
// while events pass, and nothing is left after the end.
func TestRemovedSocketFilesComeBack(t *testing.T) {
	b, s := serve(t, Config{})
	names := []string{pubName, pullName, ackName, publishMarker, workersMarker}
	for _, name := range names {
		if err := os.Remove(filepath.Join(s.cfg.Dir, name)); err != nil {
			t.Fatal(err)
		}
	}

	for _, name := range names {
		await.That(t, name+" comes back", func() bool {
			_, err := os.Lstat(filepath.Join(s.cfg.Dir, name))
			return err == nil
		})
	}

	l, err := DialPub(await.Context(t), s.cfg.Dir)
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	if err := s.Settle(await.Context(t)); err != nil {
		t.Fatal(err)
	}

	b.Fire("after/removal", value.NewMap())
	if e, err := l.Next(await.Context(t)); err != nil || e.Tag != "after/removal" {
		t.Errorf("%v, %v", e.Tag, err)
	}

	s.Close()
	for _, name := range names {
		if _, err := os.Lstat(filepath.Join(s.cfg.Dir, name)); err == nil {
			t.Errorf("%s is left over", name)
		}
	}
}

func TestStaleSocketsAreReplaced(t *testing.T) {
	dir := sockDir(t)
	for _, name := range []string{pubName, pullName, ".tmp._pub.ipc"} {
		l, err := net.ListenUnix("unix", &net.UnixAddr{Name: filepath.Join(dir, name)})
		if err != nil {
			t.Fatal(err)
		}
		l.SetUnlinkOnClose(false)
		l.Close()
	}
	serve(t, Config{Dir: dir})
}

func TestSocketPathErrors(t *testing.T) {
	quiet := slog.New(slog.DiscardHandler)
	dir := sockDir(t)
	if err := os.WriteFile(filepath.Join(dir, pullName), []byte("precious"), 0o600); err != nil {
		t.Fatal(err)
	}

	_, err := Serve(newBus(), Config{Dir: dir}, quiet)
	if err == nil || !strings.Contains(err.Error(), "not a socket") {
		t.Errorf("%v", err)
	}

	if b, _ := os.ReadFile(filepath.Join(dir, pullName)); string(b) != "precious" {
		t.Error("the file was harmed")
	}

	if _, err := os.Stat(filepath.Join(dir, pubName)); err == nil {
		t.Error("the pub socket was left over")
	}

	long := filepath.Join(sockDir(t), strings.Repeat("d", 90))
	os.Mkdir(long, 0o700)
	_, err = Serve(newBus(), Config{Dir: long}, quiet)
	if err == nil || !strings.Contains(err.Error(), "shorter sock_dir") {
		t.Errorf("%v", err)
	}

	if _, err = DialPub(await.Context(t), long); err == nil || !strings.Contains(err.Error(), "allows") {
		t.Errorf("%v", err)
	}
}

// Attack 19: bytes that a hostile or broken writer may send to the pull socket.
func TestAttack19PullWriters(t *testing.T) {
	good := read(t, "event_pull_frame.bin")
	framed := func(v any) []byte {
		b, err := msgpack.Marshal(v, msgpack.Modern)
		if err != nil {
			t.Fatal(err)
		}
		return append(binary.BigEndian.AppendUint32(nil, uint32(len(b))), b...)
	}

	body := func(b string) []byte { return framed(data("head", data(), "body", []byte(b))) }
	for _, c := range []struct {
		name string
		send []byte
		bad  uint64
		next bool // a good event after it arrives
	}{
		{"nothing bad", nil, 0, true},
		{"claims 4 GiB", []byte{0xff, 0xff, 0xff, 0xff, 1, 2, 3}, 1, false},
		{"over the limit", append(binary.BigEndian.AppendUint32(nil, 3<<20), make([]byte, 3<<20)...), 1, true},
		{"empty frame", []byte{0, 0, 0, 0}, 1, true},
		{"not msgpack", []byte{0, 0, 0, 1, 0xc1}, 1, true},
		{"array that claims 2^32 items", []byte{0, 0, 0, 5, 0xdd, 0xff, 0xff, 0xff, 0xff}, 1, true},
		{"deep", append([]byte{0, 0, 4, 0}, bytes.Repeat([]byte{0x91}, 1024)...), 1, true},
		{"deep body", body("tag\n\n\x81\xa1x" + strings.Repeat("\x91", 1024)), 1, true},
		{"not a map", framed([]any{1}), 1, true},
		{"no body", framed(data("head", data())), 1, true},
		{"body without separator", body("tag"), 1, true},
		{"empty tag", body("\n\n\x80"), 1, true},
		{"data is a list", body("tag\n\n\x90"), 1, true},
		{"trailing bytes", body("tag\n\n\x80\x80"), 1, true},
		{"without prefix", good[prefixLen:], 1, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			b, s := serve(t, Config{})
			sub := b.Subscribe("s", 10, nil)
			conn, err := net.Dial("unix", filepath.Join(s.cfg.Dir, pullName))
			if err != nil {
				t.Fatal(err)
			}
			defer conn.Close()

			conn.Write(append(c.send, good...))
			if c.next {
				select {
				case e := <-sub.C:
					if e.Tag != "salt/key" {
						t.Errorf("%+v", e)
					}
				case <-time.After(10 * time.Second):
					t.Fatal("the good event after it is missing")
				}
			} else {
				until(t, func() bool { st := s.Stats(); return st.Writers == 0 && st.Bad == c.bad })
			}

			if len(sub.C) != 0 || s.Stats().Bad != c.bad {
				t.Errorf("%d more events, %+v", len(sub.C), s.Stats())
			}
		})
	}
}

func TestWriterThatStopsInsideAFrame(t *testing.T) {
	_, s := serve(t, Config{FrameTimeout: 50 * time.Millisecond})
	silent, err := net.Dial("unix", filepath.Join(s.cfg.Dir, pullName))
	if err != nil {
		t.Fatal(err)
	}
	defer silent.Close()

	stuck, err := net.Dial("unix", filepath.Join(s.cfg.Dir, pullName))
	if err != nil {
		t.Fatal(err)
	}
	defer stuck.Close()

	until(t, func() bool { return s.Stats().Writers == 2 })
	stuck.Write([]byte{0, 0, 1})
	until(t, func() bool { return s.Stats().Writers == 1 })
	if _, err := stuck.Read(make([]byte, 1)); err == nil {
		t.Error("the stuck writer was not cut off")
	}
}

// Attack 32: a local user without the right connects to the pull socket.
func TestAttack32OtherUser(t *testing.T) {
	for _, c := range []struct {
		name    string
		uid     uint32
		err     error
		allowed bool
	}{
		{"root", 0, nil, true},
		{"self", uint32(os.Geteuid()), nil, true},
		{"configured", 4711, nil, true},
		{"other", 65534, nil, false},
		{"unknown", 0, errors.New("no credentials"), false},
	} {
		t.Run(c.name, func(t *testing.T) {
			b, s := serve(t, Config{
				PullUIDs: []uint32{4711},
				peerUID:  func(*net.UnixConn) (uint32, error) { return c.uid, c.err },
			})

			sub := b.Subscribe("s", 1, nil)
			p := NewSender(s.cfg.Dir)
			defer p.Close()

			p.Fire(await.Context(t), "x", data())
			if c.allowed {
				select {
				case <-sub.C:
				case <-time.After(10 * time.Second):
					t.Fatal("no event")
				}
				return
			}

			until(t, func() bool { return s.Stats().Refused == 1 })
			if len(sub.C) != 0 {
				t.Error("the event was taken")
			}
		})
	}

	_, s := serve(t, Config{})
	c, err := net.DialUnix("unix", nil, &net.UnixAddr{Name: filepath.Join(s.cfg.Dir, pullName)})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()

	if uid, err := peerUID(c); err != nil || uid != uint32(os.Geteuid()) {
		t.Errorf("PeerUID: %d, %v", uid, err)
	}
}

func FuzzListener(f *testing.F) {
	for _, v := range vectors(f, "event") {
		b := read(f, v.File)
		f.Add(b)
		f.Add(append(binary.BigEndian.AppendUint32(nil, uint32(len(b))), b...))
	}

	f.Fuzz(func(t *testing.T, b []byte) {
		mine, theirs := net.Pipe()
		go func() {
			theirs.Write(b)
			theirs.Close()
		}()

		l := &Listener{conn: mine}
		defer l.Close()
		for range len(b) + 2 {
			if _, err := l.Next(context.Background()); err != nil {
				return
			}
		}

		t.Fatal("more events than bytes")
	})
}

func BenchmarkFireToReaders(b *testing.B) {
	bus, s := serve(b, Config{})
	for range 3 {
		l := listenTo(b, s)
		go io.Copy(io.Discard, l.conn)
	}
	d := data("cmd", "_return", "id", "m1", "success", true, "return", true, "retcode", 0, "jid",
		"20261121080455885058", "fun", "test.ping")
	b.ReportAllocs()
	for b.Loop() {
		bus.Fire("salt/job/20261121080455885058/ret/m1", d)
	}
}
