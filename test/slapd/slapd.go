// Package slapd runs OpenLDAP's server for tests, as a process of the test with a
// configuration of its own; the system's is not touched.
package slapd

import (
	"bytes"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"saltern/test/address"
	"saltern/test/authority"
	"saltern/test/await"
)

// Suffix is the name of the directory's root entry, Root its administrator, whose
// password is RootPassword.
const (
	Suffix       = "dc=example,dc=com"
	Root         = "cn=admin,dc=example,dc=com"
	RootPassword = "root secret"
)

// Server is a running slapd. Its methods fail the test.
type Server struct {
	t         testing.TB
	dir, conf string
	args      []string
	cmd       *exec.Cmd
	out       bytes.Buffer
	// URI and SecureURI are ldap:// and ldaps:// with a port.
	URI, SecureURI string
	// CA is the file with the authority of the server's certificate.
	CA string
}

// config is what slapd is told. Unauthenticated binds succeed, as with many servers by
// default (RFC 4513, 5.1.2).
const config = `include /etc/ldap/schema/core.schema
include /etc/ldap/schema/cosine.schema
include /etc/ldap/schema/nis.schema
include /etc/ldap/schema/inetorgperson.schema
objectclass ( 1.3.6.1.4.1.4203.666.1 NAME 'computer' SUP top STRUCTURAL MUST cn )
pidfile %[1]s/pid
modulepath /usr/lib/ldap
moduleload back_mdb
moduleload memberof
allow bind_anon_dn bind_anon_cred
TLSCACertificateFile %[2]s
TLSCertificateFile %[1]s/cert.pem
TLSCertificateKeyFile %[1]s/key.pem
sizelimit 2000
database mdb
suffix "` + Suffix + `"
rootdn "` + Root + `"
rootpw "` + RootPassword + `"
directory %[1]s/db
index objectClass,uid,memberUid,member eq
access to attrs=userPassword by anonymous auth by * none
access to * by * read
overlay memberof
`

// Start runs a server with the entries of an LDIF on the loopback interface. The test is
// skipped without slapd.
func Start(t testing.TB, ldif string) *Server {
	t.Helper()
	return StartAt(t, "127.0.0.1", ldif)
}

// StartAt is Start for an address of this host.
func StartAt(t testing.TB, host, ldif string) *Server {
	t.Helper()
	program, err := exec.LookPath("slapd")
	if err != nil {
		program = "/usr/sbin/slapd"
	}

	if _, err := os.Stat(program); err != nil {
		t.Skip("SKIPPED: slapd is not installed (apt-get install slapd ldap-utils)")
	}

	dir := t.TempDir()
	ca := authority.New(t)
	s := &Server{t: t, dir: dir, conf: filepath.Join(dir, "slapd.conf"), CA: ca.File}
	s.must(os.Mkdir(filepath.Join(dir, "db"), 0o700))
	s.write("slapd.conf", fmt.Appendf(nil, config, dir, ca.File))
	ca.Sign(dir, host, time.Now().Add(24*time.Hour))
	plain, secure := address.Free(t, host).String(), address.Free(t, host).String()
	s.URI, s.SecureURI = "ldap://"+plain, "ldaps://"+secure
	s.args = []string{program, "-d", "none", "-f", s.conf, "-h", s.URI + "/ " + s.SecureURI + "/"}
	s.Resume()
	t.Cleanup(s.Stop)
	s.Add(ldif)

	return s
}

// Add puts the entries of an LDIF into the directory, by its own door: so overlays see
// them.
func (s *Server) Add(ldif string) {
	s.t.Helper()
	cmd := exec.Command("ldapadd", "-x", "-H", s.URI, "-D", Root, "-w", RootPassword)
	cmd.Stdin = strings.NewReader(ldif)
	if out, err := cmd.CombinedOutput(); err != nil {
		s.t.Fatalf("ldapadd: %v\n%s", err, out)
	}
}

// Resume starts a server again that was stopped, at the same ports.
func (s *Server) Resume() {
	s.t.Helper()
	s.cmd = exec.Command(s.args[0], s.args[1:]...)
	s.cmd.Stdout, s.cmd.Stderr = &s.out, &s.out
	s.cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	s.must(s.cmd.Start())
	await.That(s.t, "slapd listens", func() bool {
		for _, u := range []string{s.URI, s.SecureURI} {
			_, addr, _ := strings.Cut(u, "://")
			c, err := net.DialTimeout("tcp", addr, time.Second)
			if err != nil {
				return false
			}
			_ = c.Close()
		}

		return true
	})
}

// Stop ends the server.
func (s *Server) Stop() {
	if s.cmd == nil {
		return
	}
	_ = s.cmd.Process.Signal(syscall.SIGTERM)
	_ = s.cmd.Process.Signal(syscall.SIGCONT) // after Freeze
	_ = s.cmd.Wait()
	s.cmd = nil
}

// Freeze lets the server hang, until Thaw.
func (s *Server) Freeze() {
	s.t.Helper()
	s.must(s.cmd.Process.Signal(syscall.SIGSTOP))
	await.That(s.t, "slapd hangs", func() bool {
		b, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", s.cmd.Process.Pid))
		return err == nil && bytes.Contains(b, []byte(") T "))
	})
}

// Thaw ends Freeze.
func (s *Server) Thaw() { s.t.Helper(); s.must(s.cmd.Process.Signal(syscall.SIGCONT)) }

func (s *Server) write(name string, b []byte) {
	s.t.Helper()
	s.must(os.WriteFile(filepath.Join(s.dir, name), b, 0o600))
}

func (s *Server) must(err error) {
	s.t.Helper()
	if err != nil {
		s.t.Fatal(err)
	}
}
