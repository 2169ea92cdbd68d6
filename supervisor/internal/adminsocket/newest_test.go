package adminsocket

import (
	"context"
	"testing"
	"time"

	"saltern/internal/control"
)

// The master asks its own node; one that serves what is written says so.
func TestDoorNewest(t *testing.T) {
	d, c, _, _ := startDoor(t, time.Now)
	at := time.Unix(1e9, 0).UTC()
	d.cfg.Newest = func(context.Context) control.Newest { return control.Newest{AsOf: at, Why: "no\nanswer"} }
	open(t, c)
	for _, all := range []bool{false, true} {
		n, err := c.Newest(t.Context(), control.NewestQuestion{All: all})
		if err != nil || !n.AsOf.Equal(at) || n.Why != "no answer" || len(n.Others) != 0 {
			t.Errorf("all %v: %+v %v", all, n, err)
		}
	}
}
