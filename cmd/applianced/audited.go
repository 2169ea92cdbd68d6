package main

import (
	"fmt"
	"os"
	"strings"

	"github.com/spf13/cobra"

	"saltern/internal/audit"
	"saltern/internal/printable"
	"saltern/supervisor/settings"
)

// auditedVerbs returns the verbs that work in this process, each with its action in the audit
// record. The other verbs send a request to the supervisor, which writes the audit record.
func auditedVerbs() map[string]string {
	return map[string]string{
		"secrets import": "secrets.import",
		"secrets remove": "secrets.remove",
		"python add":     "python.add",
		"python remove":  "python.remove",
		"backup":         "backup.make", "restore": "backup.restore", "import": "master.import", "export": "master.export",
		"upgrade": "system.upgrade", "upgrade back": "system.back", "reboot": "system.reboot", "admin add-key": "admin.add-key",
		"storage apply": "storage.apply", "storage tls": "storage.tls", "support": "support.make",
		"lb drain": "lb.drain", "lb maint": "lb.maint", "lb undrain": "lb.undrain", "lb cut": "lb.cut", "lb weight": "lb.weight",
	}
}

// audited wraps the verbs of auditedVerbs: each writes an audit record before it begins, and
// another with its outcome. A verb that does not run as root gets no record: it fails by itself, or
// changes nothing.
func audited(f *flags, root *cobra.Command) {
	verbs := auditedVerbs()
	var each func(*cobra.Command)
	each = func(cmd *cobra.Command) {
		if action, ok := verbs[verbOf(cmd)]; ok {
			run := cmd.RunE
			cmd.RunE = func(cmd *cobra.Command, args []string) error { return f.recorded(cmd, action, args, run) }
		}
		for _, sub := range cmd.Commands() {
			each(sub)
		}
	}
	each(root)
}

// verbOf returns the name of a verb behind the names of its parents, such as "keys accept".
func verbOf(cmd *cobra.Command) string {
	_, verb, _ := strings.Cut(cmd.CommandPath(), " ")
	return verb
}

func (f *flags) recorded(
	cmd *cobra.Command,
	action string,
	args []string,
	run func(*cobra.Command, []string) error,
) error {
	if os.Geteuid() != 0 {
		return run(cmd, args)
	}

	s, err := settings.Load(f.config, hostname())
	if err != nil {
		base := settings.Default(hostname())
		s = &base
	}

	if _, err := os.Stat(s.DataDir); err != nil { // this machine is not a node (yet)
		return run(cmd, args)
	}

	log := audit.Open(audit.Config{Dir: s.AuditDir(), Node: s.Node, Program: "applianced"})
	r := audit.Record{Actor: audit.Self(os.Getenv), Action: action, Object: strings.Join(args, " "), Op: audit.NewOp()}
	asked := r
	asked.Result = audit.Asked
	log.Write(cmd.Context(), asked)
	err = run(cmd, args)
	log.Note(r.Ended(err))
	log.Close()

	if fault := log.Fault(); fault != nil {
		fmt.Fprintf(cmd.ErrOrStderr(), "this is not in the audit record: %s\n", printable.Clean(fault.Error()))
	}

	return err
}
