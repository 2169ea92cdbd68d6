package nodeapi_test

import (
	"errors"
	"testing"

	"saltern/supervisor/nodeapi"
)

// TestFinding14DroppedGuess: an impostor that has got its guess and breaks the
// connection must not look like a network that will be better in a second.
func TestFinding14DroppedGuess(t *testing.T) {
	i := &impostor{guess: "a-guess-of-the-impostor", drop: true}
	if err := meetIt(t, i.serve(t), "correct-horse-battery-staple"); !errors.Is(err, nodeapi.ErrUnproven) {
		t.Errorf("%v", err)
	}
	if i.proofs != 1 {
		t.Errorf("%d proofs were sent", i.proofs)
	}
}
