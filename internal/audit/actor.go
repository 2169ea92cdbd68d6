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

// unset is the login uid of a process that nobody has logged in for.
const unset = 1<<32 - 1

// ActorEnv names the variable by which a program of a node tells a tool that it
// starts for whom: the user, and the [Proof] before it with a colon. It counts only
// where nobody has logged in.
const ActorEnv = "SALTERN_ACTOR"

// Self is who runs this process. getenv is os.Getenv outside of tests.
func Self(getenv func(string) string) Actor {
	uid := os.Getuid()
	a := whoIs("/proc/self", uid, getenv("SUDO_USER"))
	if proof, name, ok := strings.Cut(getenv(ActorEnv), ":"); ok && a.Proof != Login && name != "" {
		a.As, a.User, a.Proof = UserName(uid), name, Proof(proof)
	}
	return a
}

// PeerProcess is who runs the process pid, which has connected to a socket of ours as uid;
// the kernel vouches for both. What /proc says of a process with another uid, or of
// none, is not believed: the caller may be gone, and its number another's.
func PeerProcess(pid, uid int) Actor {
	dir := fmt.Sprintf("/proc/%d", pid)
	if pid <= 0 || !runsAs(dir, uid) {
		return Actor{User: UserName(uid), Proof: Process, UID: &uid, From: Local}
	}
	return whoIs(dir, uid, sudoUser(dir))
}

// whoIs finds who is behind a process of uid; sudo is SUDO_USER of its environment,
// which counts for a process of root only.
func whoIs(dir string, uid int, sudo string) Actor {
	a := Actor{User: UserName(uid), Proof: Process, UID: &uid, From: Local}
	login, ok := loginUID(dir)
	switch {
	case ok && login == uid:
		a.Proof = Login
	case ok:
		a.User, a.Proof, a.As = UserName(login), Login, a.User
	case uid == 0 && sudo != "" && sudo != "root":
		a.User, a.Proof, a.As = sudo, Sudo, a.User
	}
	return a
}

// loginUID is the user who logged in and whose process this is: sudo and su keep it,
// and without CAP_AUDIT_CONTROL nobody can change it (proc_pid_loginuid(5)).
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

// sudoUser finds SUDO_USER in the environment of a process; only root may read that
// of others.
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

// UserName is the name of a user of this host, or the number of one without.
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

// LoginName is the user who has logged in and whose process this is, if it is another
// than the one as whom it runs; "" if not, or if nobody has.
func LoginName() string {
	login, ok := loginUID("/proc/self")
	if !ok || login == os.Getuid() {
		return ""
	}
	return UserName(login)
}
