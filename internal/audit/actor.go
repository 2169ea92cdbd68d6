package audit

import (
	"bytes"
	"fmt"
	"os"
	"os/user"
	"strconv"
	"strings"

	"saltern/internal/durable"
)

// unset is the login uid that the kernel reports for a process without a login.
const unset = 1<<32 - 1

// ActorEnv is the environment variable in which a program of a node names the actor on whose behalf
// it starts a tool: the [Proof], a colon, and the user. Readers ignore it if the kernel knows who
// has logged in.
const ActorEnv = "SALTERN_ACTOR"

// Self returns the actor that runs this process. getenv is os.Getenv outside of tests.
func Self(getenv func(string) string) Actor {
	uid := os.Getuid()
	a := whoIs("/proc/self", uid, getenv("SUDO_USER"))
	if proof, name, ok := strings.Cut(getenv(ActorEnv), ":"); ok && a.Proof != Login && name != "" {
		a.As = UserName(uid)
		a.User = name
		a.Proof = Proof(proof)
	}
	return a
}

// PeerProcess returns the actor that runs the process pid, which has connected to one of our
// sockets as uid. The kernel vouches for pid and uid. If the process now has another uid or no
// longer exists, PeerProcess ignores /proc: the caller may have ended, and another process may have
// its ID.
func PeerProcess(pid, uid int) Actor {
	dir := fmt.Sprintf("/proc/%d", pid)
	if pid <= 0 || !runsAs(dir, uid) {
		return Actor{User: UserName(uid), Proof: Process, UID: &uid, From: Local}
	}
	return whoIs(dir, uid, sudoUser(dir))
}

// whoIs returns the actor behind a process of uid. dir is the process's folder in /proc. sudo is
// SUDO_USER of its environment, which is used only for a process of root.
func whoIs(dir string, uid int, sudo string) Actor {
	a := Actor{User: UserName(uid), Proof: Process, UID: &uid, From: Local}
	login, ok := loginUID(dir)
	switch {
	case ok && login == uid:
		a.Proof = Login
	case ok:
		a.As = a.User
		a.User = UserName(login)
		a.Proof = Login
	case uid == 0 && sudo != "" && sudo != "root":
		a.As = a.User
		a.User = sudo
		a.Proof = Sudo
	}
	return a
}

// loginUID returns the uid of the login from which the process descends, or false if there is none.
// sudo and su keep this uid, and only CAP_AUDIT_CONTROL may change it (proc_pid_loginuid(5)).
func loginUID(dir string) (int, bool) {
	b, err := durable.Read(dir+"/loginuid", 32)
	if err != nil {
		return 0, false
	}
	n, err := strconv.ParseUint(string(bytes.TrimSpace(b)), 10, 32)
	return int(n), err == nil && n != unset
}

// runsAs reports whether the process has this effective uid.
func runsAs(dir string, uid int) bool {
	b, err := durable.Read(dir+"/status", 64<<10)
	if err != nil {
		return false
	}
	for l := range bytes.Lines(b) {
		if rest, ok := bytes.CutPrefix(l, []byte("Uid:")); ok {
			f := bytes.Fields(rest)
			return len(f) > 1 && string(f[1]) == strconv.Itoa(uid)
		}
	}
	return false
}

// sudoUser returns SUDO_USER of a process's environment, or "" if it cannot be read: only root may
// read the environment of other users' processes.
func sudoUser(dir string) string {
	b, err := durable.Read(dir+"/environ", 1<<20)
	if err != nil {
		return ""
	}
	for v := range bytes.SplitSeq(b, []byte{0}) {
		if name, ok := bytes.CutPrefix(v, []byte("SUDO_USER=")); ok {
			return clipText(string(name), maxName)
		}
	}
	return ""
}

// UserName returns the name of a user of this host, or the number when the user has no name.
func UserName(uid int) string {
	if uid == 0 {
		return "root"
	}
	u, err := user.LookupId(strconv.Itoa(uid))
	if err != nil {
		return strconv.Itoa(uid)
	}
	return u.Username
}

// LoginName returns the user whose login started this process, if the process runs as another user.
// Otherwise it returns "".
func LoginName() string {
	login, ok := loginUID("/proc/self")
	if !ok || login == os.Getuid() {
		return ""
	}
	return UserName(login)
}
