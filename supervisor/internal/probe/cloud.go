package probe

import (
	"os"
	"path/filepath"
	"strings"
)

// DMI is where the kernel shows the firmware's data about the machine.
const DMI = "/sys/class/dmi/id"

// OnEC2 reports whether the firmware's data says that the machine runs on Amazon EC2
// (docs.aws.amazon.com, "Detect whether a host is an EC2 instance").
func OnEC2(dmi string) bool {
	for _, f := range []string{"sys_vendor", "board_vendor", "bios_vendor", "product_uuid"} {
		b, err := os.ReadFile(filepath.Join(dmi, f))
		if s := strings.ToLower(strings.TrimSpace(string(b))); err == nil &&
			(strings.Contains(s, "amazon ec2") || f == "product_uuid" && strings.HasPrefix(s, "ec2")) {
			return true
		}
	}
	return false
}
