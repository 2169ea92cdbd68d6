# For `packer init packer/plugins.pkr.hcl`, with Packer from 1.7 on. Debian's 1.6.6
# has both plugins built in and refuses this block: it must be given the other
# files by name, as their comments do.
packer {
  required_version = ">= 1.7.0"
  required_plugins {
    qemu = {
      version = "= 1.1.0"
      source  = "github.com/hashicorp/qemu"
    }
    amazon = {
      version = "= 1.3.1"
      source  = "github.com/hashicorp/amazon"
    }
  }
}
