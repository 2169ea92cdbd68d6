package glusterctl

import (
	"encoding/json"
	"fmt"
	"io"

	"saltern/glusterctl/disk"
	"saltern/glusterctl/layout"
	"saltern/glusterctl/mount"
)

type layoutSpec struct {
	Root   string      `json:"root"`
	Volume string      `json:"volume"`
	Tree   layout.Tree `json:"tree"`
}

// HelperMain is the main function of a child process that touches the volume. A program that uses
// [Controller] or mount.Prober chooses a command, such as `applianced storage helper …`, for which
// it calls HelperMain with the remaining arguments. It exits with the returned status:
//
//	probe PATH [DIR]    print the health of the mount (JSON on out)
//	layout SPEC         create the directories
//	names VOLUME PATH   print the names whose copies hold different files (JSON on out)
//	clear DIR           remove glusterd's marks from an empty directory
func HelperMain(args []string, out, errOut io.Writer) int {
	if len(args) == 0 {
		fmt.Fprintln(errOut, "usage: probe PATH [DIR] | layout SPEC | names VOLUME PATH | clear DIR")
		return 2
	}

	switch args[0] {
	case "probe":
		return mount.Main(args[1:], out)
	case "layout":
		if err := makeTree(args[1:]); err != nil {
			fmt.Fprintln(errOut, err)
			return 1
		}
		return 0
	case "names":
		if len(args) != 3 {
			fmt.Fprintln(errOut, "usage: names VOLUME PATH")
			return 2
		}

		r, err := namesOf(args[1], args[2])
		if err == nil {
			err = json.NewEncoder(out).Encode(r)
		}

		if err != nil {
			fmt.Fprintln(errOut, err)
			return 1
		}

		return 0
	case "clear":
		if len(args) != 2 {
			fmt.Fprintln(errOut, "usage: clear DIR")
			return 2
		}

		if err := disk.ClearBrick(args[1]); err != nil {
			fmt.Fprintln(errOut, err)
			return 1
		}

		return 0
	}

	fmt.Fprintf(errOut, "unknown helper %q\n", args[0])
	return 2
}

func makeTree(args []string) error {
	if len(args) != 1 {
		return fmt.Errorf("layout: one argument is needed, got %d", len(args))
	}

	var spec layoutSpec
	if err := json.Unmarshal([]byte(args[0]), &spec); err != nil {
		return fmt.Errorf("layout: %w", err)
	}

	// The volume may have been unmounted since the plan was made. Without this check the tree would
	// be created on the local disk.
	m := mount.Mounter{Volume: spec.Volume, Point: spec.Root}
	e, ok, err := m.Entry()
	if err != nil {
		return err
	}
	if !ok || e.Type != mount.FSType {
		return fmt.Errorf("layout: no volume is mounted at %s", spec.Root)
	}

	return layout.Make(spec.Root, spec.Tree)
}
