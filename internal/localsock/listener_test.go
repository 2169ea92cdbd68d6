package localsock_test

import (
	"errors"
	"net"
	"os"
	"path/filepath"
	"testing"
	"time"

	"saltern/internal/localsock"
	"saltern/test/await"
)

func connect(t *testing.T, path string) net.Conn {
	t.Helper()
	c, err := net.Dial("unix", path)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	return c
}

// TestRemovedSocketComesBack: the socket file of a listener is removed twice. Each time it is created
// again with its mode, those who had connected before are served before those who come after, and a
// call of Accept that waits goes on.
func TestRemovedSocketComesBack(t *testing.T) {
	path := filepath.Join(t.TempDir(), "sock")
	ln, err := localsock.Listen(path, 0o640, os.Getegid())
	if err != nil {
		t.Fatal(err)
	}
	defer ln.Close()

	await.That(t, "the socket file", func() bool { return localsock.Free(path) != nil })
	if c, err := ln.Accept(); err != nil { // the look of await.That
		t.Fatal(err)
	} else {
		c.Close()
	}

	for round := range 2 {
		before := connect(t, path)
		if err := os.Remove(path); err != nil {
			t.Fatal(err)
		}

		await.That(t, "the socket file comes back", func() bool {
			st, err := os.Lstat(path)
			return err == nil && st.Mode() == os.ModeSocket|0o640
		})

		after := connect(t, path)
		for i, want := range []net.Conn{before, after} {
			c, err := ln.Accept()
			if err != nil {
				t.Fatalf("round %d: connection %d: %v", round, i, err)
			}
			defer c.Close()
			if _, err := want.Write([]byte{byte(i)}); err != nil {
				t.Fatal(err)
			}
			got := make([]byte, 1)
			if _, err := c.Read(got); err != nil || got[0] != byte(i) {
				t.Errorf("round %d: connection %d: read %v, %v", round, i, got, err)
			}
		}

		// The next one is accepted by a call that waits while the file is away.
		accepted := make(chan error, 1)
		go func() {
			c, err := ln.Accept()
			if err == nil {
				c.Close()
			}
			accepted <- err
		}()

		if err := os.Remove(path); err != nil {
			t.Fatal(err)
		}
		await.That(t, "the socket file comes back for a call that waits", func() bool {
			_, err := os.Lstat(path)
			return err == nil
		})
		connect(t, path)
		if err := <-accepted; err != nil {
			t.Fatal(err)
		}
	}

	if left, _ := os.ReadDir(filepath.Dir(path)); len(left) != 1 {
		t.Errorf("left over: %v", left)
	}

	if err := ln.Close(); err != nil {
		t.Error(err)
	}
	if _, err := ln.Accept(); !errors.Is(err, net.ErrClosed) {
		t.Errorf("closed: %v", err)
	}
}

// TestSocketOfASuccessorIsLeftAlone: a listener neither replaces nor removes what somebody else has
// put at its path, and does not create the file again once it has given the path up.
func TestSocketOfASuccessorIsLeftAlone(t *testing.T) {
	path := filepath.Join(t.TempDir(), "sock")
	old, err := localsock.Listen(path, 0o600, -1)
	if err != nil {
		t.Fatal(err)
	}
	abandoned, err := localsock.Listen(path+"2", 0o600, -1)
	if err != nil {
		t.Fatal(err)
	}
	defer abandoned.Close()
	abandoned.Abandon()
	if err := os.Remove(path + "2"); err != nil {
		t.Fatal(err)
	}

	next, err := localsock.Listen(path, 0o600, -1)
	if err != nil {
		t.Fatal(err)
	}
	defer next.Close()
	own, err := os.Lstat(path)
	if err != nil {
		t.Fatal(err)
	}

	await.Holds(t, 1200*time.Millisecond, "the paths stay as they are", func() bool {
		now, err := os.Lstat(path)
		_, second := os.Lstat(path + "2")
		return err == nil && os.SameFile(now, own) && second != nil
	})

	if err := old.Remove(); err != nil {
		t.Error(err)
	}
	if now, err := os.Lstat(path); err != nil || !os.SameFile(now, own) {
		t.Errorf("the successor's file is gone with its predecessor: %v", err)
	}
}
