// Package layout writes a node's files: directories with their owners and modes, and the generated
// configuration of the master and the load balancer. It also checks the administrator's own files,
// and never changes them. All its functions are idempotent.
package layout

import (
	"cmp"
	"errors"
	"fmt"
	"os"
	"os/user"
	"strconv"
	"strings"
	"syscall"

	"saltern/internal/durable"
)

// Account is the account under which a child runs.
type Account struct {
	Name       string              // the name in generated configuration
	UID, GID   int                 // user and group ID
	Credential *syscall.Credential // nil: the account of this process
	// Missing reports that this process is root and the named account does not exist, so that the
	// child runs as root.
	Missing bool
}

// imageMark is a line of os-release that only the appliance's image has. In the image nobody can
// change that file.
const imageMark = "IMAGE_ID=saltern\n"

// InImage reports whether the system is the appliance's image. An empty path
// stands for /usr/lib/os-release.
func InImage(release string) bool {
	release = cmp.Or(release, "/usr/lib/os-release")
	text, _, err := durable.ReadFile(release, 64<<10, durable.Follow)
	return err == nil && strings.Contains("\n"+string(text), "\n"+imageMark)
}

// FindAccount returns the account under which a child runs. That is the account of this process if
// this process is not root, name is empty, or the named account does not exist.
func FindAccount(name string) (Account, error) {
	self := Account{Name: strconv.Itoa(os.Geteuid()), UID: os.Geteuid(), GID: os.Getegid()}
	if u, err := user.LookupId(self.Name); err == nil {
		self.Name = u.Username
	}

	if self.UID != 0 || name == "" || name == self.Name {
		return self, nil
	}

	u, err := user.Lookup(name)
	if _, ok := errors.AsType[user.UnknownUserError](err); ok {
		self.Missing = true
		return self, nil
	}
	if err != nil {
		return self, fmt.Errorf("look up account %s: %w", name, err)
	}

	uid, err1 := strconv.ParseUint(u.Uid, 10, 32)
	gid, err2 := strconv.ParseUint(u.Gid, 10, 32)
	if err := errors.Join(err1, err2); err != nil {
		return self, fmt.Errorf("look up account %s: %w", name, err)
	}

	return Account{Name: name, UID: int(uid), GID: int(gid),
		Credential: &syscall.Credential{Uid: uint32(uid), Gid: uint32(gid)}}, nil
}
