package peers

import (
	"errors"
	"fmt"
	"testing"

	"saltern/internal/control"
	"saltern/master/cluster"
	"saltern/master/cluster/node"
)

// What the cluster refuses has a code, whatever its text.
func TestControlCodes(t *testing.T) {
	c := Controlled{Pool: &cluster.Pool{}}
	for cause, want := range map[error]error{
		node.ErrNotMember: control.ErrNoSuchMember, node.ErrLast: &control.Error{Code: control.CodeLastMember},
		node.ErrNotStaged: &control.Error{Code: control.CodeNotStaged}, node.ErrInactive: &control.Error{Code: control.CodeNoCluster},
	} {
		if err := c.onCluster(true, func() error { return fmt.Errorf("later: %w", cause) }); !errors.Is(err, want) {
			t.Errorf("%v became %v", cause, err)
		}
	}

	if err := c.onCluster(false, nil); !errors.Is(err, &control.Error{Code: control.CodeBadRequest}) {
		t.Errorf("without an argument: %v", err)
	}

	if err := c.onCluster(true, func() error { return errors.New("no such member of the cluster") }); errors.Is(err, control.ErrNoSuchMember) {
		t.Error("a text was taken for a code")
	}
}
