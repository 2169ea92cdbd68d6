# Boots the finished disk once in QEMU, looks at it over SSH, and keeps the
# copy with what you add in the provisioner below. For an image without
# additions use `make image`; nothing here builds the system itself.
#
#   packer init packer/plugins.pkr.hcl          from Packer 1.7 on
#   packer validate -var ssh_key=$HOME/.ssh/id_ed25519 packer/qemu.pkr.hcl
#   packer build -var ssh_key=$HOME/.ssh/id_ed25519 -var seed=seed.iso packer/qemu.pkr.hcl

variable "disk" {
  type        = string
  description = "qcow2 of make image (default: dist/saltern-cloud.qcow2 of this checkout)"
  default     = ""
}

variable "ssh_key" {
  type        = string
  description = "Private key; its public half must be in the answers on the seed"
}

variable "seed" {
  type        = string
  description = "cidata ISO with answers, see examples/cloud-init"
  default     = "seed.iso"
}

variable "accelerator" {
  type    = string
  default = "kvm"
}

source "qemu" "saltern" {
  iso_url              = var.disk != "" ? var.disk : "${path.root}/../dist/saltern-cloud.qcow2"
  iso_checksum         = "none"
  disk_image           = true
  disk_interface       = "virtio"
  net_device           = "virtio-net"
  format               = "qcow2"
  disk_compression     = true
  accelerator          = var.accelerator
  memory               = 1024
  cpus                 = 2
  headless             = true
  qemuargs             = [["-drive", "file=${var.seed},format=raw,if=virtio,readonly=on"]]
  ssh_username         = "admin"
  ssh_private_key_file = var.ssh_key
  ssh_timeout          = "20m"
  shutdown_command     = "sudo systemctl poweroff"
  output_directory     = "output-qemu"
  vm_name              = "saltern.qcow2"
}

build {
  sources = ["source.qemu.saltern"]

  provisioner "shell" {
    inline = [
      "applianced version",
      "sudo applianced status || true",
    ]
  }
}
