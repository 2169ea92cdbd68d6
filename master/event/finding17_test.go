package event

import (
	"strings"
	"testing"
	"time"

	"saltern/master/value"
)

// TestFinding17Bytes: the events that wait for a reader in the process are bounded in bytes, except
// for a single event, and events of minions leave room for others.
func TestFinding17Bytes(t *testing.T) {
	b := NewBus(time.Now, 0)
	sub := b.Subscribe("slow", 1000, nil)
	defer sub.Close()

	big := value.NewMap("x", strings.Repeat("x", maxWaiting/4))
	for range 20 {
		if err := b.FireFor("evil", "big", big); err != nil {
			t.Fatal(err)
		}
	}

	if n := len(sub.C); n != 3 || sub.Dropped() != 17 {
		t.Errorf("%d events of a quarter of the bound wait, %d lost", n, sub.Dropped())
	}

	small := value.NewMap("x", strings.Repeat("x", maxWaiting/4+maxWaiting/16))
	if err := b.Fire("own", small); err != nil || len(sub.C) != 4 {
		t.Errorf("the master's own event is displaced by those of a minion: %d wait", len(sub.C))
	}

	for range 4 {
		<-sub.C
	}

	huge := value.NewMap("x", strings.Repeat("x", 2*maxWaiting))
	if err := b.FireFor("evil", "huge", huge); err != nil || len(sub.C) != 1 {
		t.Error("an event alone was lost")
	}

	if e := <-sub.C; e.Lost != 0 && e.Tag == "own" {
		t.Errorf("%d lost", e.Lost)
	}

	if err := b.FireFor("evil", "after", big); err != nil || len(sub.C) != 1 {
		t.Error("there is no room after everything was read")
	}
}

// TestFinding17Number: a minion that fills a queue leaves an eighth of it to events that no minion
// made.
func TestFinding17Number(t *testing.T) {
	b := NewBus(time.Now, 0)
	sub := b.Subscribe("slow", 80, nil)
	defer sub.Close()

	for range 200 {
		if err := b.FireFor("evil", "x", value.NewMap()); err != nil {
			t.Fatal(err)
		}
	}

	if len(sub.C) != 80 {
		t.Errorf("%d events of a minion wait", len(sub.C))
	}

	for range 20 {
		if err := b.Fire("own", value.NewMap()); err != nil {
			t.Fatal(err)
		}
	}

	if len(sub.C) != 90 {
		t.Errorf("%d wait", len(sub.C))
	}
}
