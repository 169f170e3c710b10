# The loader for i386: it does the operations that abi::boot32 describes, one after the other, and jumps.
# esi: the operation. Variables lie in front of the first one: BASE, SAVED, STACK. Assembled by hand into stub32.rs; a test compares.
        .code32
        .intel_syntax noprefix
        .set    BLOCK, 0x60001000
        .set    BASE,  BLOCK
        .set    SAVED, BLOCK + 4
        .set    STACK, BLOCK + 8
start:
        mov     [STACK], esp
        mov     esi, BLOCK + 64
next:
        mov     eax, [esi]
        cmp     al, 1
        je      call
        cmp     al, 2
        je      zero
        cmp     al, 3
        je      vector
        cmp     al, 4
        je      copy
# Anything else: the end. The address of the program's first instruction stays below the stack.
        mov     eax, [esi + 4]
        add     eax, [BASE]
        mov     esp, [STACK]
        push    eax
        xor     eax, eax
        mov     ebx, eax
        mov     ecx, eax
        mov     edx, eax
        mov     esi, eax
        mov     edi, eax
        mov     ebp, eax
        push    0x202
        popfd
        ret

# A system call.
call:
        push    esi
        mov     ebx, [esi + 8]
        test    dword ptr [esi], 0x100
        jz      1f
        add     ebx, [BASE]
1:      test    dword ptr [esi], 0x200
        jz      1f
        mov     ebx, [SAVED]
1:      mov     edi, [esi + 24]
        test    dword ptr [esi], 0x400
        jz      1f
        mov     edi, [SAVED]
1:      mov     ecx, [esi + 12]
        mov     edx, [esi + 16]
        mov     ebp, [esi + 28]
        mov     eax, [esi + 4]
        mov     esi, [esi + 20]
        int     0x80
        pop     esi
        test    dword ptr [esi], 0x800
        jz      1f
        mov     [SAVED], eax
1:      test    dword ptr [esi], 0x1000
        jz      1f
        cmp     eax, 0xfffff000
        ja      fail
1:      test    dword ptr [esi], 0x2000
        jz      done
        mov     ecx, eax
        sub     ecx, [esi + 8]
        mov     [BASE], ecx
        jmp     done

# Zeros, from BASE + the second word on.
zero:
        mov     edi, [esi + 4]
        add     edi, [BASE]
        mov     ecx, [esi + 8]
        xor     eax, eax
        rep stosb
        jmp     done

# An entry of the auxiliary vector.
vector:
        mov     ebx, [esi + 8]
        test    dword ptr [esi], 0x100
        jz      1f
        add     ebx, [BASE]
1:      mov     edi, [STACK]
        mov     ecx, [edi]
        lea     edi, [edi + ecx*4 + 8]
1:      mov     eax, [edi]
        add     edi, 4
        test    eax, eax
        jnz     1b
1:      mov     eax, [edi]
        test    eax, eax
        jz      done
        cmp     eax, [esi + 4]
        je      2f
        add     edi, 8
        jmp     1b
2:      mov     [edi + 4], ebx
        jmp     done

# A word of the block, which a later call reads, becomes the address of the stack's page.
copy:
        mov     edi, [esi + 4]
        mov     eax, [STACK]
        and     eax, 0xfffff000
        mov     [edi], eax
done:
        add     esi, 32
        jmp     next

# Too late for an error: the kernel's signal.
fail:
        xor     edx, edx
        push    edx
        push    edx
        push    edx
        push    edx
        mov     eax, 174
        mov     ebx, 11
        mov     ecx, esp
        mov     esi, 8
        int     0x80
        mov     eax, 20
        int     0x80
        mov     ebx, eax
        mov     eax, 37
        mov     ecx, 11
        int     0x80
        mov     eax, 252
        mov     ebx, 139
        int     0x80
        hlt
