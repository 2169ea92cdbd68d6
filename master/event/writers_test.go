package event

import (
	"fmt"
	"net"
	"path/filepath"
	"testing"

	"saltern/master/value"
	"saltern/test/await"
)

// TestDrain: the events that a program fired before it disconnected are on the bus before the
// events that are fired after AwaitWriters. AwaitWriters does not wait for a program that stays
// connected and sends nothing.
func TestDrain(t *testing.T) {
	b, s := serve(t, Config{})
	connect := func() net.Conn {
		c, err := net.Dial("unix", filepath.Join(s.cfg.Dir, pullName))
		if err != nil {
			t.Fatal(err)
		}
		return c
	}

	idle := connect()
	defer idle.Close()
	sub := b.Subscribe("test", 5000, nil)
	defer sub.Close()

	for round := range 20 {
		for range 10 {
			c := connect()
			for n := range 10 {
				frame, _, err := packFrame(fmt.Sprintf("own/%d/%d", round, n), value.NewMap(), 0)
				if err != nil {
					t.Fatal(err)
				}
				if _, err := c.Write(frame); err != nil {
					t.Fatal(err)
				}
			}

			c.Close()
		}

		if err := s.AwaitWriters(await.Context(t)); err != nil {
			t.Fatal(err)
		}
		if len(sub.C) != 100 {
			t.Fatalf("%d of 100 events are on the bus", len(sub.C))
		}

		for range 100 {
			<-sub.C
		}
	}

	// The connection of AwaitWriters itself is gone when the server has read its end.
	await.That(t, "writers that are not counted any more", func() bool { return s.Stats().Writers == 1 })
	if st := s.Stats(); st.Refused != 0 {
		t.Errorf("%+v", st)
	}

	s.Close()
	if err := s.AwaitWriters(await.Context(t)); err == nil {
		t.Error("drained without a socket")
	}
}
