package peers

import (
	"errors"
	"fmt"
	"testing"

	"saltern/internal/control"
	"saltern/internal/rpc"
	"saltern/master/cluster"
	"saltern/master/cluster/node"
)

// What the cluster refuses has a code, whatever its text.
func TestControlCodes(t *testing.T) {
	c := Controlled{Pool: &cluster.Pool{}}
	for cause, want := range map[error]error{
		node.ErrNotMember: control.ErrNoSuchMember, node.ErrLast: &rpc.Error{Code: rpc.CodeLastMember},
		node.ErrNotStaged: &rpc.Error{Code: rpc.CodeNotStaged}, node.ErrInactive: &rpc.Error{Code: rpc.CodeNoCluster},
	} {
		if err := c.onCluster(true, func() error { return fmt.Errorf("later: %w", cause) }); !errors.Is(err, want) {
			t.Errorf("%v became %v", cause, err)
		}
	}

	if err := c.onCluster(false, nil); !errors.Is(err, &rpc.Error{Code: rpc.CodeBadRequest}) {
		t.Errorf("without an argument: %v", err)
	}

	if err := c.onCluster(true, func() error { return errors.New("no such member of the cluster") }); errors.Is(err, control.ErrNoSuchMember) {
		t.Error("a text was taken for a code")
	}
}
