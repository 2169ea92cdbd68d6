package batch

import (
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"
)

// TestSlotsAreForEverybody: an account without all rights has two slots, and a run of the schedule waits
// for one.
func TestSlotsAreForEverybody(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		slots := NewSlots()
		const ann = "pam/ann"
		var release []func()
		take := func(by string) error {
			r, err := slots.Take(t.Context(), by, false)
			if err == nil {
				release = append(release, r)
			}
			return err
		}

		for i := range maxAsking {
			by := fmt.Sprint("pam/u", i)
			if i < maxAskingOfOne {
				by = ann
			}
			if err := take(by); err != nil {
				t.Fatal(err)
			}
			if i == maxAskingOfOne {
				if err := take(ann); !errors.Is(err, ErrAskingOfOne) {
					t.Errorf("one more of ann: %v", err)
				}
			}
		}
		if err := take(""); !errors.Is(err, ErrAsking) {
			t.Errorf("one more: %v", err)
		}

		if _, err := slots.Take(t.Context(), "", true); !errors.Is(err, ErrAsking) {
			t.Errorf("the schedule has waited: %v", err)
		}
		time.AfterFunc(slotWait/2, release[0])
		last, err := slots.Take(t.Context(), "", true)
		if err != nil {
			t.Fatal(err)
		}
		release[0] = last
		for _, r := range release {
			r()
		}
		if len(slots.taken) > 0 || len(slots.ofOne) > 0 {
			t.Errorf("%d slots are left, of %v", len(slots.taken), slots.ofOne)
		}
	})
}
